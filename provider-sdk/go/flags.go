package sdk

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"cloudprovider.ccm/sdk/scrub"
)

const maxGraceSeconds = 24 * 60 * 60

// Flags are the flags that all sidecars share, whichever SDK they use.
type Flags struct {
	serving   *serving
	uids      string
	logFormat string
	logLevel  string
}

// BindFlags adds the flags to a set. Parse the set before using them.
func BindFlags(set *flag.FlagSet) *Flags {
	flags := &Flags{serving: newServing()}
	s := flags.serving
	set.StringVar(&s.endpoint, "endpoint", s.endpoint,
		"where to listen: unix:///path/of/the/socket, or tcp://address:port with the three --tls flags; also "+endpointEnv)
	set.StringVar(&flags.uids, "allowed-peer-uids", "",
		"`uid,...`: user ids that may call over the Unix socket, instead of the provider's own and root")
	set.StringVar(&s.tls.Certificate, "tls-cert-file", "", "certificate chain of the server (PEM); reloaded when it changes")
	set.StringVar(&s.tls.Key, "tls-key-file", "", "private key of the server (PEM); reloaded when it changes")
	set.StringVar(&s.tls.ClientCA, "tls-client-ca-file", "",
		"certificates of the authorities that sign clients' certificates (PEM); reloaded when it changes")
	set.Func("tls-client-names", "`name,...`: DNS names or URIs (a SPIFFE ID), one of which a client's certificate must carry; by default any certificate of the authorities is accepted", func(text string) error {
		s.tls.ClientNames = strings.Split(text, ",")
		if slices.Contains(s.tls.ClientNames, "") {
			return fmt.Errorf("%q contains an empty name; write for example ccm-host.kube-system", text)
		}
		return nil
	})
	set.BoolVar(&s.reflection, "reflection", false, "serve gRPC reflection (v1)")
	set.StringVar(&s.metricsAddress, "metrics-address", "",
		"serve metrics over HTTP at /metrics: a port (on the loopback address) or `address:port`; off by default")
	set.Func("shutdown-grace", "how long a stop waits for running mutations, in `seconds` (default 25)", func(text string) error {
		grace, err := strconv.ParseFloat(strings.TrimSuffix(text, "s"), 64)
		if inRange := grace >= 0 && grace <= maxGraceSeconds; err != nil || !inRange {
			return fmt.Errorf("%q is not a number of seconds; use for example 25 or 25s", text)
		}
		s.grace = time.Duration(grace * float64(time.Second))
		return nil
	})
	set.StringVar(&flags.logFormat, "log-format", "text", "format of log lines: text or json")
	set.StringVar(&flags.logLevel, "log-level", "info", "log level: debug, info, warn or error")
	return flags
}

// Option returns the serve option that the flags describe.
func (f *Flags) Option() (ServeOption, error) {
	for text := range strings.SplitSeq(f.uids, ",") {
		if f.uids == "" {
			break
		}
		uid, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("--allowed-peer-uids: %q is not a user id; use for example 1000,0", text)
		}
		f.serving.allowedUIDs = append(f.serving.allowedUIDs, uint32(uid))
	}
	return func(s *serving) { *s = *f.serving }, nil
}

// Logger returns the logger that the flags describe; it redacts secrets.
func (f *Flags) Logger(out io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level: %q is not a log level; use debug, info, warn or error", f.logLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	switch f.logFormat {
	case "text":
		return slog.New(scrub.NewHandler(slog.NewTextHandler(out, options))), nil
	case "json":
		return slog.New(scrub.NewHandler(slog.NewJSONHandler(out, options))), nil
	}
	return nil, fmt.Errorf("--log-format: %q is not a log format; use text or json", f.logFormat)
}
