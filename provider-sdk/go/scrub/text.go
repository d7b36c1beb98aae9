package scrub

import "strings"

const (
	blockBegin = "-----BEGIN "
	blockEnd   = "-----END "
	dashes     = "-----"
	// randomFrom is the length from which words of mixed letters and digits are checked.
	randomFrom = 32
)

// Text returns the text with everything redacted that looks like a secret.
func Text(text string) string {
	var out strings.Builder
	out.Grow(len(text))
	for {
		start := strings.Index(text, blockBegin)
		if start < 0 {
			scan(&out, text)
			return out.String()
		}
		scan(&out, text[:start])
		length := blockLength(text[start:])
		block := text[start : start+length]
		if strings.Contains(block, "PRIVATE KEY") {
			block = Redacted
		}
		out.WriteString(block)
		text = text[start+length:]
	}
}

// blockLength returns the length of a PEM block up to its last dash; the rest of the text if it has no end.
func blockLength(text string) int {
	end := strings.Index(text, blockEnd)
	if end < 0 {
		return len(text)
	}
	end += len(blockEnd)
	last := strings.Index(text[end:], dashes)
	if last < 0 {
		return len(text)
	}
	return end + last + len(dashes)
}

func scan(out *strings.Builder, text string) {
	for text != "" {
		length := 0
		for length < len(text) && isWord(text[length]) {
			length++
		}
		done := 0
		if length == 0 {
			done = mark(out, text)
		} else {
			done = word(out, text, length)
		}
		text = text[done:]
	}
}

func isWord(char byte) bool {
	return class(char) != other || strings.IndexByte("_./+-", char) >= 0
}

// mark copies one byte outside words, or redacts the user part of a URL. It returns the number of bytes consumed.
func mark(out *strings.Builder, text string) int {
	if address, isURL := strings.CutPrefix(text, "://"); isURL {
		authority := address
		if end := strings.IndexAny(address, "/ \"\\\n"); end >= 0 {
			authority = address[:end]
		}
		if user := strings.LastIndexByte(authority, '@'); user >= 0 {
			out.WriteString("://" + Redacted)
			return len("://") + user
		}
	}
	out.WriteByte(text[0])
	return 1
}

// word copies or redacts a word and, if it is the name of a secret, its value. It returns the number of bytes consumed.
func word(out *strings.Builder, text string, length int) int {
	head, tail := text[:length], text[length:]
	if isRandom(head) {
		out.WriteString(Redacted)
		return length
	}
	out.WriteString(head)
	found := value{}
	switch {
	case isScheme(head):
		found = afterScheme(tail)
	case strings.HasPrefix(head, "//") && !strings.HasPrefix(tail, "="):
		// The end of a URL names a place, even "/token"; a colon after it introduces a message, not a value.
	case isObject(head) && beginsMessage(tail):
	case NamesSecret(head):
		found = afterName(tail)
	}
	if found.length == 0 {
		return length
	}
	out.WriteString(tail[:found.gap] + found.quote + Redacted + found.quote)
	return length + found.gap + found.length
}

// beginsMessage reports whether a colon follows, and a word in lower case, as errors begin.
func beginsMessage(tail string) bool {
	told, found := strings.CutPrefix(strings.TrimPrefix(tail, `"`), ": ")
	return found && told != "" && told[0] >= 'a' && told[0] <= 'z'
}

// isObject reports whether a word is NAMESPACE/NAME, of which a message tells after a colon. The prefix of an annotation has
// a dot.
func isObject(word string) bool {
	namespace, name, found := strings.Cut(word, "/")
	return found && namespace != "" && strings.Trim(namespace, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" && !strings.Contains(name, "/")
}

const (
	other = iota
	upper
	lower
	digit
)

func class(char byte) int {
	switch {
	case 'A' <= char && char <= 'Z':
		return upper
	case 'a' <= char && char <= 'z':
		return lower
	case '0' <= char && char <= '9':
		return digit
	}
	return other
}

// isRandom reports whether a word looks like a key or a token: long, of all three classes, alternating between them as
// names do not.
func isRandom(word string) bool {
	if len(word) < randomFrom {
		return false
	}
	var seen [digit + 1]bool
	changes, before := 0, other
	for i := range len(word) {
		now := class(word[i])
		seen[now] = true
		if now != other && before != other && now != before {
			changes++
		}
		before = now
	}
	return seen[upper] && seen[lower] && seen[digit] && changes*10 >= len(word)*3 && !isSpelled(word)
}

// isSpelled reports whether it consists of words, like a method's path: most of it is runs of lowercase letters.
func isSpelled(word string) bool {
	spelled, all, run := 0, 0, 0
	end := func() {
		if run >= 3 {
			spelled += run
		}
		run = 0
	}
	for i := range len(word) {
		now := class(word[i])
		if now != other {
			all++
		}
		if now == lower {
			run++
			continue
		}
		end()
	}
	end()
	// Fewer than one in five hundred words of random letters and digits pass.
	return spelled*100 >= all*55
}
