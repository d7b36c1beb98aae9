package scrub

import "strings"

// value is where the value of a secret starts and ends, in bytes from the end of its name. A length of zero means that
// there is none.
type value struct {
	gap    int
	length int
	// quote goes around the replacement, so that JSON stays JSON.
	quote string
}

const valueEnds = " \n\t,;&)]}\"'\\"

// isScheme reports whether a word precedes a token in an authorization header.
func isScheme(word string) bool {
	return strings.EqualFold(word, "bearer") || strings.EqualFold(word, "basic")
}

// afterScheme finds TOKEN in "Bearer TOKEN": it has at least eight bytes, so that prose stays legible.
func afterScheme(tail string) value {
	token, spaced := strings.CutPrefix(tail, " ")
	length := plain(token)
	if !spaced || length < 8 {
		return value{}
	}
	return value{gap: 1, length: length}
}

// afterName finds the value in name=VALUE, name: VALUE and "name":"VALUE", with any depth of escapes.
func afterName(tail string) value {
	rest := strings.TrimLeft(strings.TrimLeft(tail, `\`), `"'`)
	quote := tail[:len(tail)-len(rest)]
	rest = strings.TrimLeft(rest, " \t\n")
	if rest == "" || (rest[0] != ':' && rest[0] != '=') || strings.HasPrefix(rest, "::") {
		return value{}
	}
	rest = strings.TrimPrefix(strings.TrimLeft(rest[1:], "> \t"), "Some(")
	gap := len(tail) - len(rest)
	unescaped := strings.TrimLeft(rest, `\`)
	escapes := len(rest) - len(unescaped)
	if unescaped == "" {
		return value{}
	}
	switch mark := unescaped[0]; {
	case mark == '"' || mark == '\'':
		return value{gap: gap + escapes + 1, length: quoted(unescaped[1:], escapes, mark)}
	case mark == '[' && escapes == 0:
		return value{gap: gap, length: bracketed(rest, ']'), quote: quote}
	case mark == '{' && escapes == 0:
		return value{gap: gap, length: bracketed(rest, '}'), quote: quote}
	}
	return value{gap: gap, length: withScheme(rest), quote: quote}
}

// quoted counts the bytes up to the closing quote of the same depth of escapes, without the quote's escapes.
func quoted(text string, escapes int, mark byte) int {
	run := 0
	for i := range len(text) {
		if text[i] == mark && closes(run, escapes) {
			return i - min(run, escapes)
		}
		if text[i] == '\\' {
			run++
		} else {
			run = 0
		}
	}
	return len(text)
}

// closes reports whether a quote after a run of backslashes closes one at a depth of escapes.
func closes(run, escapes int) bool {
	if escapes == 0 {
		return run%2 == 0
	}
	return run <= escapes
}

func bracketed(text string, end byte) int {
	if at := strings.IndexByte(text, end); at >= 0 {
		return at + 1
	}
	return len(text)
}

func withScheme(text string) int {
	first := plain(text)
	if token, spaced := strings.CutPrefix(text[first:], " "); spaced && isScheme(text[:first]) {
		return first + 1 + plain(token)
	}
	return first
}

func plain(text string) int {
	if end := strings.IndexAny(text, valueEnds); end >= 0 {
		return end
	}
	return len(text)
}
