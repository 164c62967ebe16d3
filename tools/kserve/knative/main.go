// Reads a Knative Service as JSON and says what Knative's admission webhook would: it runs the webhook's own defaulter
// and validator, with Knative's default configuration. Exit code 1: refused.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"knative.dev/pkg/apis"
	serving "knative.dev/serving/pkg/apis/serving/v1"
)

func main() {
	var service serving.Service
	decoder := json.NewDecoder(os.Stdin)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&service); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	ctx := apis.WithinCreate(context.Background())
	service.SetDefaults(ctx)
	if err := service.Validate(ctx).Filter(apis.ErrorLevel); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
