// Prints a Compose file as Compose's own loader understands it: schema, variables, profiles, references between its parts.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	text, err := load(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Print(text)
}

func load(files []string) (string, error) {
	options, err := cli.NewProjectOptions(files, cli.WithOsEnv, cli.WithProfiles([]string{"*"}))
	if err != nil {
		return "", err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return "", err
	}
	text, err := project.MarshalYAML()
	return string(text), err
}
