package sdk_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"cloudprovider.ccm/sdk"
	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
)

func scrape(t *testing.T, server *served) string {
	t.Helper()
	answer, err := http.Get("http://" + server.MetricsAddress().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEveryCallIsMeasured(t *testing.T) {
	cloud := &cloud{
		batchGet: func(_ context.Context, request *pb.BatchGetInstancesRequest) (*pb.BatchGetInstancesResponse, error) {
			if len(request.GetQueries()) == 3 {
				return nil, fault.CloudAPIUnavailable()
			}
			return &pb.BatchGetInstancesResponse{}, nil
		},
		watch: func(context.Context, *pb.WatchInstancesRequest) (*sdk.Watch, error) { return &sdk.Watch{}, nil },
	}
	calls := prometheus.NewCounter(prometheus.CounterOpts{Name: "cloud_api_calls_total", Help: "Calls."})
	calls.Add(5)
	server := serve(t, provider(t, cloud, sdk.WithMetrics(calls)), sdk.WithMetricsAddress("127.0.0.1:0"))
	client := pb.NewInstancesClient(server.dial(t))
	for _, request := range []*pb.BatchGetInstancesRequest{queries("a"), queries("a", "b"), queries("a", "b", "c"), {}} {
		client.BatchGetInstances(soon(t), request)
	}
	frame(t, watch(t, server)) // The stream continues, but counts as answered.
	for _, want := range []string{
		`cloudprovider_rpc_duration_seconds_count{code="OK",method="BatchGetInstances",reason="",role="provider",service="ccm.cloudprovider.v1alpha1.Instances"} 2`,
		`cloudprovider_rpc_duration_seconds_count{code="UNAVAILABLE",method="BatchGetInstances",reason="CLOUD_API_UNAVAILABLE",role="provider",service="ccm.cloudprovider.v1alpha1.Instances"} 1`,
		`cloudprovider_rpc_duration_seconds_count{code="INVALID_ARGUMENT",method="BatchGetInstances",reason="INVALID_ARGUMENT_SHAPE",role="provider",service="ccm.cloudprovider.v1alpha1.Instances"} 1`,
		`cloudprovider_rpc_duration_seconds_count{code="OK",method="WatchInstances",reason="",role="provider",service="ccm.cloudprovider.v1alpha1.Instances"} 1`,
		`cloudprovider_rpcs_in_flight{method="BatchGetInstances",role="provider",service="ccm.cloudprovider.v1alpha1.Instances"} 0`,
		`cloudprovider_rpc_batch_size_sum{method="BatchGetInstances",role="provider",service="ccm.cloudprovider.v1alpha1.Instances"} 6`,
		`cloud_api_calls_total 5`,
	} {
		// A stream is measured just after its first frame was sent.
		text, until := scrape(t, server), time.Now().Add(patience)
		for !strings.Contains(text, want) && time.Now().Before(until) {
			text = scrape(t, server)
		}
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing in\n%s", want, text)
		}
	}
}

func TestAMetricThatIsThereTwiceIsSaid(t *testing.T) {
	twice := prometheus.NewGauge(prometheus.GaugeOpts{Name: "x", Help: "x"})
	_, err := sdk.Listen(provider(t, &cloud{}, sdk.WithMetrics(twice, twice)), sdk.WithEndpoint(socketPath(t)))
	if err == nil || !strings.Contains(err.Error(), "duplicate") {
		t.Error(err)
	}
}
