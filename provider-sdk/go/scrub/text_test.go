package scrub

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

const canary = "canary-hunter2"

// The texts of proto/vectors: what is redacted, and what stays legible.
func TestTextsAreScrubbedAsInEverySDK(t *testing.T) {
	file, err := os.ReadFile("../../../proto/vectors/scrubbing.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct{ Text, Hides, Becomes string }
	if err := json.Unmarshal(file, &rows); err != nil || len(rows) < 30 {
		t.Fatalf("%d rows: %v", len(rows), err)
	}
	for _, row := range rows {
		clean := Text(row.Text)
		if row.Hides == "" && clean != row.Becomes {
			t.Errorf("%s became %s", row.Text, clean)
		}
		if row.Hides != "" && (strings.Contains(clean, row.Hides) || !strings.Contains(clean, Redacted)) {
			t.Errorf("%s became %s", row.Text, clean)
		}
	}
}

func FuzzTextKeepsItsPromises(f *testing.F) {
	for _, seed := range []string{"token=a", `"token":"`, "-----BEGIN ", "://@", `token=\\\"`, "token::x", "größe token=ä"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		once := Text(text)
		if !strings.Contains(once, Redacted) && once != text {
			t.Errorf("%q became %q without a redaction", text, once)
		}
	})
}
