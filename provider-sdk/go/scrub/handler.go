package scrub

import (
	"context"
	"fmt"
	"log/slog"
)

// NewHandler wraps a log handler and redacts everything that looks like a secret.
//
// Attributes whose key names a secret are redacted entirely; of others, only what looks like a secret.
func NewHandler(inner slog.Handler) slog.Handler {
	if _, wrapped := inner.(*handler); wrapped {
		return inner
	}
	return &handler{inner: inner}
}

type handler struct {
	inner slog.Handler
}

func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.inner.Enabled(ctx, level)
}

func (h *handler) Handle(ctx context.Context, record slog.Record) error {
	clean := slog.NewRecord(record.Time, record.Level, Text(record.Message), record.PC)
	record.Attrs(func(attr slog.Attr) bool {
		clean.AddAttrs(scrubbed(attr))
		return true
	})
	return h.inner.Handle(ctx, clean)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{inner: h.inner.WithAttrs(all(attrs))}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{inner: h.inner.WithGroup(name)}
}

func all(attrs []slog.Attr) []slog.Attr {
	clean := make([]slog.Attr, len(attrs))
	for i, attr := range attrs {
		clean[i] = scrubbed(attr)
	}
	return clean
}

func scrubbed(attr slog.Attr) slog.Attr {
	if NamesSecret(attr.Key) {
		return slog.String(attr.Key, Redacted)
	}
	switch value := attr.Value.Resolve(); value.Kind() {
	case slog.KindGroup:
		return slog.Attr{Key: attr.Key, Value: slog.GroupValue(all(value.Group())...)}
	case slog.KindString:
		return slog.String(attr.Key, Text(value.String()))
	case slog.KindAny:
		// As text: a structure could hold anything, and the inner handler would encode it unscrubbed.
		return slog.String(attr.Key, Text(fmt.Sprintf("%+v", value.Any())))
	default:
		return slog.Attr{Key: attr.Key, Value: value}
	}
}
