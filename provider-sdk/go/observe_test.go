package sdk

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A mutation that takes too long says nothing about the cloud: its outcome is unknown.
func TestTheLongestDeadlineIsNoOutage(t *testing.T) {
	for name, row := range map[string]struct {
		ends time.Duration
		want codes.Code
	}{
		"the mutation's":      {-time.Second, codes.DeadlineExceeded},
		"a call's to a cloud": {time.Hour, codes.Unavailable},
	} {
		ctx, done := context.WithTimeout(t.Context(), row.ends)
		defer done()
		if got := status.Code(fail(ctx, fmt.Errorf("POST: %w", context.DeadlineExceeded))); got != row.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
