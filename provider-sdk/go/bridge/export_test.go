package bridge

import "time"

// WithExit replaces the exit of the process.
func WithExit(exit func(error)) Option { return func(b *bridge) { b.leading.exit = exit } }

// WithPatience replaces the time that an item gets while others of its batch wait for it.
func WithPatience(patience time.Duration) Option { return func(b *bridge) { b.patience = patience } }
