// Package scrub redacts text that looks like a secret before it leaves the process.
//
// In: any text or slog record. Out: the same with redacted values after names of secrets, bearer tokens, private keys,
// passwords in URLs and long random strings. It is a safety net below the rule that logs and errors never contain
// secrets: when in doubt it redacts.
package scrub

// Redacted replaces a secret.
const Redacted = "[redacted]"
