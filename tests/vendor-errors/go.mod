module cloudprovider.ccm/tests/vendor-errors

go 1.26.0

replace (
	cloudprovider.ccm/sdk => ../../provider-sdk/go
	cloudprovider.ccm/sdk/bridge => ../../provider-sdk/go/bridge
)

require (
	cloudprovider.ccm/sdk v0.0.0-00010101000000-000000000000
	cloudprovider.ccm/sdk/bridge v0.0.0-00010101000000-000000000000
	github.com/Azure/azure-sdk-for-go/sdk/azcore v1.24.0
	github.com/aws/aws-sdk-go v1.55.8
	github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2 v1.64.0
	github.com/aws/smithy-go v1.28.9
	github.com/gophercloud/gophercloud/v2 v2.15.0
	golang.org/x/oauth2 v0.38.0
	google.golang.org/api v0.313.0
)

require (
	github.com/Azure/azure-sdk-for-go/sdk/internal v1.13.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261104224025-d1e00e9f33ab // indirect
	google.golang.org/grpc v1.85.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
