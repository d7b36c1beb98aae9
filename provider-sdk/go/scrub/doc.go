// Package scrub takes what looks like a secret out of a text before it leaves the process.
//
// In: any text or slog record. Out: the same with values redacted that stand after the name of a secret, bearer tokens,
// private keys, passwords in URLs and long random strings. It is a net below the rule that no secret is ever given to a
// log or an error, and errs on the side of redacting.
package scrub

// Redacted stands in place of a secret.
const Redacted = "[redacted]"
