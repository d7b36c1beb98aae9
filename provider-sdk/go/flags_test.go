package sdk

import (
	"bytes"
	"flag"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestEndpoints(t *testing.T) {
	for text, want := range map[string]string{
		"unix:///run/p.sock":           "unix:///run/p.sock",
		"unix:/run/p.sock":             "unix:///run/p.sock",
		"/run/p.sock":                  "unix:///run/p.sock",
		"tcp://127.0.0.1:0":            "tcp://127.0.0.1:0",
		"tcp://[::1]:7443/":            "tcp://[::1]:7443",
		"https://127.0.0.1:7443":       "tcp://127.0.0.1:7443",
		"/" + strings.Repeat("x", 99):  "unix:///" + strings.Repeat("x", 99),
		"/" + strings.Repeat("x", 100): "error: at most 100",
		"unix://relative":              "error: not the absolute path",
		"unix:///run/":                 "error: not the absolute path",
		"unix-abstract:x":              "error: no file permissions",
		"unix:@x":                      "error: no file permissions",
		"@x":                           "error: no file permissions",
		"http://127.0.0.1:80":          "error: plain TCP",
		"tcp://localhost:80":           "error: not address:port",
		"tcp://127.0.0.1":              "error: not address:port",
		"tcp://127.0.0.1:70000":        "error: not address:port",
		"":                             "error: not an endpoint",
		"ftp://x":                      "error: not an endpoint",
	} {
		endpoint, err := ParseEndpoint(text)
		if wanted, bad := strings.CutPrefix(want, "error: "); bad {
			if err == nil || !strings.Contains(err.Error(), wanted) {
				t.Errorf("%q became %v %v", text, endpoint, err)
			}
		} else if err != nil || endpoint.String() != want {
			t.Errorf("%q became %v %v", text, endpoint, err)
		}
	}
}

func parse(t *testing.T, args ...string) (*serving, error) {
	t.Helper()
	set := flag.NewFlagSet("sidecar", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	flags := BindFlags(set)
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	option, err := flags.Option()
	if err != nil {
		return nil, err
	}
	out := &serving{}
	option(out)
	return out, nil
}

func TestFlagsSayHowToServe(t *testing.T) {
	t.Setenv("CLOUDPROVIDER_ENDPOINT", "")
	defaults, err := parse(t)
	if err != nil || defaults.endpoint != "unix:///run/cloudprovider/provider.sock" || defaults.grace != 25*time.Second ||
		defaults.reflection || defaults.metricsAddress != "" || !defaults.signals || defaults.allowedUIDs != nil {
		t.Errorf("the defaults are %+v %v", defaults, err)
	}
	t.Setenv("CLOUDPROVIDER_ENDPOINT", "/run/env.sock")
	if got, err := parse(t); err != nil || got.endpoint != "/run/env.sock" {
		t.Errorf("got %+v %v", got, err)
	}
	got, err := parse(t, "--endpoint=/run/p.sock", "--allowed-peer-uids=5, 0", "--tls-cert-file=c", "--tls-key-file=k",
		"--tls-client-ca-file=a", "--reflection", "--metrics-address=:9090", "--shutdown-grace=1.5s")
	if err != nil || got.endpoint != "/run/p.sock" || !slices.Equal(got.allowedUIDs, []uint32{5, 0}) ||
		got.tls.Certificate != "c" || got.tls.Key != "k" || got.tls.ClientCA != "a" || !got.reflection ||
		got.metricsAddress != ":9090" || got.grace != 1500*time.Millisecond {
		t.Errorf("got %+v %v", got, err)
	}
	for args, want := range map[string]string{
		"--allowed-peer-uids=root": `"root" is not a user id`,
		"--shutdown-grace=soon":    "not a number of seconds",
		"--shutdown-grace=-1":      "not a number of seconds",
		"--shutdown-grace=NaN":     "not a number of seconds",
	} {
		if _, err := parse(t, args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func TestLogsAreAsTheFlagsSayAndScrubbed(t *testing.T) {
	for _, row := range []struct{ format, level, want, wantError string }{
		{"text", "info", `level=INFO msg=seen password=[redacted]`, ""},
		{"json", "DEBUG", `"msg":"seen","password":"[redacted]"`, ""},
		{"text", "error", "", ""},
		{"xml", "info", "", `"xml" is not a log format`},
		{"text", "loud", "", `"loud" is not a log level`},
	} {
		out := &bytes.Buffer{}
		log, err := (&Flags{logFormat: row.format, logLevel: row.level}).Logger(out)
		if row.wantError != "" {
			if err == nil || !strings.Contains(err.Error(), row.wantError) {
				t.Errorf("%+v: %v", row, err)
			}
			continue
		}
		log.Info("seen", "password", "canary-hunter2")
		if text := out.String(); !strings.Contains(text, row.want) || (row.want == "") != (text == "") || strings.Contains(text, "canary") {
			t.Errorf("%+v: %s", row, text)
		}
	}
}
