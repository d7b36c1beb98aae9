package sdk

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// healthServer reports whether the provider accepts work, and nothing more. When the provider stops, its streams report
// it and end; a graceful stop would otherwise wait for them.
type healthServer struct {
	healthpb.UnimplementedHealthServer
	life *lifecycle
}

func (s *healthServer) Check(_ context.Context, request *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	health := s.life.health(request.GetService())
	if !health.known {
		return nil, status.Error(codes.NotFound, "the service is not served")
	}
	return &healthpb.HealthCheckResponse{Status: servingStatus(health.serving)}, nil
}

func (s *healthServer) List(context.Context, *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	answer := &healthpb.HealthListResponse{Statuses: map[string]*healthpb.HealthCheckResponse{}}
	for _, service := range s.life.services() {
		serving := s.life.health(service).serving
		answer.Statuses[service] = &healthpb.HealthCheckResponse{Status: servingStatus(serving)}
	}
	return answer, nil
}

func (s *healthServer) Watch(request *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	told := healthpb.HealthCheckResponse_UNKNOWN
	for {
		health := s.life.health(request.GetService())
		now := servingStatus(health.serving)
		if !health.known {
			// The protocol keeps such a stream open, since the service might be registered later; here it never is.
			now = healthpb.HealthCheckResponse_SERVICE_UNKNOWN
		}
		if now != told {
			if err := stream.Send(&healthpb.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
			told = now
		}
		if health.last {
			return nil
		}
		select {
		case <-health.changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func servingStatus(serving bool) healthpb.HealthCheckResponse_ServingStatus {
	if serving {
		return healthpb.HealthCheckResponse_SERVING
	}
	return healthpb.HealthCheckResponse_NOT_SERVING
}
