package sdk

import (
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"
)

// codeName returns a code's canonical name, for logs and metrics.
func codeName(of codes.Code) string {
	if name, known := code.Code_name[int32(of)]; known {
		return name
	}
	return code.Code_UNKNOWN.String()
}
