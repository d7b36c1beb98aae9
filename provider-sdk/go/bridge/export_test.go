package bridge

import "time"

// WithPatience replaces the time that an item gets while others of its batch wait for it.
func WithPatience(patience time.Duration) Option { return func(b *bridge) { b.patience = patience } }
