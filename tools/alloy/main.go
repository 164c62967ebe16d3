// Command alloyfmt does to each file what `alloy fmt --test` does: Alloy's own parser reads it, and Alloy's own printer would write
// it so. It knows no components: Alloy itself does not build from the module proxy.
package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/grafana/alloy/syntax/parser"
	"github.com/grafana/alloy/syntax/printer"
)

func check(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	tree, err := parser.ParseFile(path, text)
	if err != nil {
		return err
	}
	var printed bytes.Buffer
	if err := printer.Fprint(&printed, tree); err != nil {
		return err
	}
	if !bytes.Equal(bytes.TrimSpace(printed.Bytes()), bytes.TrimSpace(text)) {
		return fmt.Errorf("%s: not in Alloy's form, which is:\n%s", path, printed.String())
	}
	return nil
}

func main() {
	failed := false
	for _, path := range os.Args[1:] {
		if err := check(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}
