package scrub

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

type config struct {
	Region   string
	Password string
}

// The canary test: however a secret is logged, it does not get through, and the text next to it does.
func TestCanaryNeverReachesTheLog(t *testing.T) {
	formats := map[string]func(*bytes.Buffer) slog.Handler{
		"text": func(out *bytes.Buffer) slog.Handler { return slog.NewTextHandler(out, nil) },
		"json": func(out *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(out, nil) },
	}
	rows := map[string]func(*slog.Logger){
		"key":     func(log *slog.Logger) { log.Info("x", "api_token", canary, "stays", "here") },
		"message": func(log *slog.Logger) { log.Info("password=" + canary + " here") },
		"error":   func(log *slog.Logger) { log.Info("x", "error", errors.New("bad token: "+canary+", here")) },
		"struct":  func(log *slog.Logger) { log.Info("x", "config", config{"here", canary}) },
		"pointer": func(log *slog.Logger) { log.Info("x", "config", &config{"here", canary}) },
		"map":     func(log *slog.Logger) { log.Info("x", "labels", map[string]string{"secret": canary, "stays": "here"}) },
		"group":   func(log *slog.Logger) { log.Info("x", slog.Group("g", "cookie", canary, "stays", "here")) },
		"whole group": func(log *slog.Logger) {
			log.Info("here", slog.Group("credentials", "user", "x", "value", canary))
		},
		"with":       func(log *slog.Logger) { log.With("passphrase", canary, "stays", "here").Info("x") },
		"with group": func(log *slog.Logger) { log.WithGroup("g").With("bearer", canary).Info("here") },
		"number":     func(log *slog.Logger) { log.Info("here", "token", 5) },
	}
	for format, open := range formats {
		for name, write := range rows {
			var out bytes.Buffer
			write(slog.New(NewHandler(open(&out))))
			line := out.String()
			if strings.Contains(line, canary) || !strings.Contains(line, Redacted) || !strings.Contains(line, "here") {
				t.Errorf("%s, %s: %s", format, name, line)
			}
		}
	}
}
