package sdk

import "time"

// WithLastWords replaces the time that a mutation has to answer after it was told to give up.
func WithLastWords(lastWords time.Duration) ServeOption {
	return func(s *serving) { s.lastWords = lastWords }
}
