package bridge

import (
	"regexp"
	"strings"
)

// requestIDs are the forms in which clouds' libraries write a request's id into an error's text. Texts become Events, and
// a different id would make a different Event.
var requestIDs = []*regexp.Regexp{
	// "RequestID: 6f1c", "request id: 6f1c", "x-ms-request-id: 6f1c", "Correlation ID: 6f1c", "(request "6f1c")"
	regexp.MustCompile(`(?i)[,;]?\s*\(?["']?\b(?:x-[a-z-]*)?(?:request|correlation|trace|activity)(?:[ _-]?id["']?\s*[:=]\s*["']?|\s+["'])([0-9a-z][0-9a-z_-]{6,63}[0-9a-z])["']?\)?`),
	// OpenStack's "req-6f1c1f9e-..."
	regexp.MustCompile(`()[,;]?\s*\(?\b(req-[0-9a-f]{8}-[0-9a-f-]{27})\b\)?`),
	// hcloud's "(invalid_input, 0a1b2c3d4e5f6071)"
	regexp.MustCompile(`(\([a-z_]+), ([0-9a-f]{16,64})(?:\))`),
}

// withoutRequestID returns a text that is stable from call to call, and the id that it contained.
func withoutRequestID(text string) (same, id string) {
	found := ""
	for at, pattern := range requestIDs {
		text = pattern.ReplaceAllStringFunc(text, func(match string) string {
			groups := pattern.FindStringSubmatch(match)
			one := groups[len(groups)-1]
			if !strings.ContainsAny(one, "0123456789") {
				return match // A word, not an id.
			}
			if found == "" {
				found = one
			}
			switch at {
			case 2:
				return groups[1] + ")"
			default:
				return ""
			}
		})
	}
	return strings.TrimSpace(text), found
}
