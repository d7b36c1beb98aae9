package sdk

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// P6: a vendor's metrics are served wherever they are registered, and metrics in two registries only once.
func TestMetricsOfOtherRegistriesAreServed(t *testing.T) {
	one, other := prometheus.NewRegistry(), prometheus.NewRegistry()
	for registry, value := range map[*prometheus.Registry]float64{one: 1, other: 2} {
		gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "both"})
		gauge.Set(value)
		registry.MustRegister(gauge)
	}
	own := prometheus.NewCounter(prometheus.CounterOpts{Name: "vendor_calls"})
	other.MustRegister(own)
	provider, err := New("x", WithGatherers(one, other))
	if err != nil {
		t.Fatal(err)
	}
	if err := provider.metrics.register(); err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	provider.metrics.handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.Code != 200 || !strings.Contains(string(text), "\nboth 1\n") || strings.Contains(string(text), "both 2") ||
		!strings.Contains(string(text), "vendor_calls 0") {
		t.Errorf("%d %v\n%s", answer.Code, err, text)
	}
}
