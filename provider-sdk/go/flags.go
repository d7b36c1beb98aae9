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

// Flags are the flags that every sidecar has alike, whichever SDK it is built with.
type Flags struct {
	serving   *serving
	uids      string
	logFormat string
	logLevel  string
}

// BindFlags adds them to a set. Read them after the set was parsed.
func BindFlags(set *flag.FlagSet) *Flags {
	flags := &Flags{serving: newServing()}
	s := flags.serving
	set.StringVar(&s.endpoint, "endpoint", s.endpoint,
		"where to listen: unix:///path/of/the/socket, or tcp://address:port with the three --tls flags; also "+endpointEnv)
	set.StringVar(&flags.uids, "allowed-peer-uids", "",
		"`uid,...`: user ids that may call over the Unix socket, instead of the own one and root")
	set.StringVar(&s.tls.Certificate, "tls-cert-file", "", "certificate chain of the server (PEM); read again when it changes")
	set.StringVar(&s.tls.Key, "tls-key-file", "", "private key of the server (PEM); read again when it changes")
	set.StringVar(&s.tls.ClientCA, "tls-client-ca-file", "",
		"authorities that may have signed a client's certificate (PEM); read again when it changes")
	set.Func("tls-client-names", "`name,...`: DNS names of which a client's certificate must carry one; without them every certificate of the authorities will do", func(text string) error {
		s.tls.ClientNames = strings.Split(text, ",")
		if slices.Contains(s.tls.ClientNames, "") {
			return fmt.Errorf("%q holds an empty name; write for example ccm-host.kube-system", text)
		}
		return nil
	})
	set.BoolVar(&s.reflection, "reflection", false, "serve gRPC reflection (v1)")
	set.StringVar(&s.metricsAddress, "metrics-address", "",
		"serve metrics over HTTP at /metrics: a port (on the loopback address) or `address:port`; off by default")
	set.Func("shutdown-grace", "how long a stop waits for running mutations, in `seconds` (default 25)", func(text string) error {
		grace, err := strconv.ParseFloat(strings.TrimSuffix(text, "s"), 64)
		if inRange := grace >= 0 && grace <= maxGraceSeconds; err != nil || !inRange {
			return fmt.Errorf("%q is no number of seconds; use for example 25 or 25s", text)
		}
		s.grace = time.Duration(grace * float64(time.Second))
		return nil
	})
	set.StringVar(&flags.logFormat, "log-format", "text", "how log lines look: text or json")
	set.StringVar(&flags.logLevel, "log-level", "info", "what is logged: debug, info, warn or error")
	return flags
}

// Option answers how to serve, as the flags say.
func (f *Flags) Option() (ServeOption, error) {
	for text := range strings.SplitSeq(f.uids, ",") {
		if f.uids == "" {
			break
		}
		uid, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("--allowed-peer-uids: %q is no user id; use for example 1000,0", text)
		}
		f.serving.allowedUIDs = append(f.serving.allowedUIDs, uint32(uid))
	}
	return func(s *serving) { *s = *f.serving }, nil
}

// Logger answers a scrubbed logger, as the flags say.
func (f *Flags) Logger(out io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level: %q is no log level; use debug, info, warn or error", f.logLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	switch f.logFormat {
	case "text":
		return slog.New(scrub.NewHandler(slog.NewTextHandler(out, options))), nil
	case "json":
		return slog.New(scrub.NewHandler(slog.NewJSONHandler(out, options))), nil
	}
	return nil, fmt.Errorf("--log-format: %q is no format; use text or json", f.logFormat)
}
