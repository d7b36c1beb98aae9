package fault

import (
	"fmt"
	"strconv"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// codeOf holds the gRPC code of each reason, from the options of the enum.
var codeOf = func() map[pb.ErrorReason]codes.Code {
	read := map[pb.ErrorReason]codes.Code{}
	values := pb.ErrorReason(0).Descriptor().Values()
	for at := range values.Len() {
		code, err := codeFrom(values.Get(at))
		if err != nil {
			panic(err) // Only a broken contract gets here, and then no test passes.
		}
		read[pb.ErrorReason(values.Get(at).Number())] = code
	}
	return read
}()

func codeFrom(value protoreflect.EnumValueDescriptor) (codes.Code, error) {
	traits, _ := proto.GetExtension(value.Options(), pb.E_Reason).(*pb.ReasonTraits)
	if len(traits.GetCodes()) == 0 || traits.GetRetry() == pb.RetryClass_RETRY_CLASS_UNSPECIFIED {
		return 0, fmt.Errorf("reason %s names no code, or no retry class", value.Name())
	}
	var code codes.Code
	err := code.UnmarshalJSON([]byte(strconv.Quote(traits.GetCodes()[0])))
	return code, err
}

// CodeOf returns the gRPC code of a reason that fails a whole call. Reasons that the contract only has for items get
// the closest code, an unknown reason UNKNOWN.
func CodeOf(reason pb.ErrorReason) codes.Code {
	if code, known := codeOf[reason]; known {
		return code
	}
	return codes.Unknown
}
