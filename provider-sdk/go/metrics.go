package sdk

import (
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// metrics are the metrics of every RPC, under the same names as in the host.
type metrics struct {
	registry  *prometheus.Registry
	own       []prometheus.Collector
	others    []prometheus.Gatherer
	durations *prometheus.HistogramVec
	inFlight  *prometheus.GaugeVec
	batches   *prometheus.HistogramVec
}

func newMetrics() *metrics {
	role := prometheus.Labels{"role": "provider"}
	return &metrics{
		registry: prometheus.NewRegistry(),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:        "cloudprovider_rpc_duration_seconds",
			Help:        "Time from the arrival of an RPC to the head of its answer, by outcome.",
			ConstLabels: role,
			// From a call answered from memory to the longest deadline of the contract.
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 30, 120, 600},
		}, []string{"service", "method", "code", "reason"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name:        "cloudprovider_rpcs_in_flight",
			Help:        "RPCs that are not answered yet.",
			ConstLabels: role,
		}, []string{"service", "method"}),
		batches: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:        "cloudprovider_rpc_batch_size",
			Help:        "Items of a batch as it arrived.",
			ConstLabels: role,
			Buckets:     []float64{1, 2, 5, 10, 25, 50, 100, 250, 500, 1000},
		}, []string{"service", "method"}),
	}
}

// register exposes all metrics; the error names a duplicate metric.
func (m *metrics) register() error {
	for _, collector := range append([]prometheus.Collector{m.durations, m.inFlight, m.batches}, m.own...) {
		if err := m.registry.Register(collector); err != nil {
			return err
		}
	}
	return nil
}

func (m *metrics) handler() http.Handler {
	mux := http.NewServeMux()
	gather := prometheus.GathererFunc(m.gather)
	mux.Handle("GET /metrics", promhttp.HandlerFor(gather, promhttp.HandlerOpts{
		EnableOpenMetrics: true, ErrorHandling: promhttp.ContinueOnError,
	}))
	return mux
}

// gather returns each metric once, since the registries of libraries all contain the metrics of the process.
func (m *metrics) gather() (all []*dto.MetricFamily, err error) {
	seen := map[string]bool{}
	for _, one := range append([]prometheus.Gatherer{m.registry}, m.others...) {
		found, failed := one.Gather()
		err = errors.Join(err, failed)
		for _, family := range found {
			if !seen[family.GetName()] {
				seen[family.GetName()] = true
				all = append(all, family)
			}
		}
	}
	return all, err
}

func (m *metrics) started(of method) { m.inFlight.WithLabelValues(of.service, of.name).Inc() }

func (m *metrics) batch(of method, items int) {
	m.batches.WithLabelValues(of.service, of.name).Observe(float64(items))
}

func (m *metrics) ended(of method, code, reason string, took time.Duration) {
	m.inFlight.WithLabelValues(of.service, of.name).Dec()
	m.durations.WithLabelValues(of.service, of.name, code, reason).Observe(took.Seconds())
}
