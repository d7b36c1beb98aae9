package sdk

import (
	"context"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	discovery "cloudprovider.ccm/sdk/gen/ccm/discovery/v1"
)

// discoveryServer reports the provider's identity and services, always from memory.
type discoveryServer struct {
	discovery.UnimplementedDiscoveryServer
	answer     *discovery.GetInfoResponse
	introduced func()
}

func newDiscoveryServer(provider *Provider, services []string) *discoveryServer {
	return &discoveryServer{introduced: provider.introduced, answer: &discovery.GetInfoResponse{
		Name:               provider.name,
		VendorVersion:      provider.vendorVersion,
		SdkName:            sdkName,
		SdkVersion:         Version,
		ProviderIdPrefixes: provider.prefixes,
		Services:           services,
		ProcessEpoch:       provider.epoch,
	}}
}

func (s *discoveryServer) GetInfo(ctx context.Context, host *discovery.GetInfoRequest) (*discovery.GetInfoResponse, error) {
	Logger(ctx).Debug("a host connected", "host", host.GetHostName(), "version", host.GetHostVersion())
	if s.introduced != nil {
		s.introduced()
	}
	return s.answer, nil
}

// baseServer serves the constant capabilities and the provider's status, and handles Lead.
type baseServer struct {
	pb.UnimplementedCloudProviderServer
	*core
}

func (s *baseServer) GetCapabilities(context.Context, *pb.GetCapabilitiesRequest) (*pb.GetCapabilitiesResponse, error) {
	return s.provider.advertised.answer, nil
}

func (s *baseServer) GetStatus(ctx context.Context, request *pb.GetStatusRequest) (*pb.GetStatusResponse, error) {
	if s.provider.status == nil {
		return &pb.GetStatusResponse{}, nil
	}
	return s.provider.status.GetStatus(ctx, request)
}

func (s *baseServer) Lead(_ context.Context, request *pb.LeadRequest) (*pb.LeadResponse, error) {
	return s.hear(request)
}
