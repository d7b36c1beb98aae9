package bridge

import (
	"bytes"
	"flag"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

// klog's flags decide what a provider logs, and --log-level whether infos are logged at all.
func TestTheVerbosityOfKlogIsThatOfItsFlags(t *testing.T) {
	// In a process of its own: whatever logs must not do so while klog's logger is replaced.
	if os.Getenv("ALONE") == "" {
		alone := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		alone.Env = append(os.Environ(), "ALONE=yes")
		if out, err := alone.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	set := flag.NewFlagSet("sidecar", flag.ContinueOnError)
	bindFlags(set, pflag.NewFlagSet("vendor", pflag.ContinueOnError))
	logged := func(level slog.Level, args ...string) string {
		if err := set.Parse(append([]string{"-v=0", "--vmodule="}, args...)); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		logFromKlog(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})))
		klog.V(6).Info("six")
		klog.V(7).Info("seven")
		klog.Background().WithName("cloud").V(6).Info("contextual-six", "key", "value")
		klog.Background().V(7).Info("contextual-seven")
		klog.Info("info")
		klog.Error("error")
		var words []string
		for line := range strings.Lines(out.String()) {
			_, text, _ := strings.Cut(line, "msg=")
			words = append(words, strings.TrimSuffix(strings.Fields(text)[0], "\\n\""))
		}
		return strings.ReplaceAll(strings.Join(words, " "), `"`, "")
	}
	for _, row := range []struct {
		level slog.Level
		args  []string
		want  string
	}{
		{slog.LevelInfo, nil, "info error"},
		{slog.LevelInfo, []string{"-v=6"}, "six contextual-six info error"},
		{slog.LevelInfo, []string{"-v=7"}, "six seven contextual-six contextual-seven info error"},
		{slog.LevelInfo, []string{"--vmodule=main_test=6"}, "six contextual-six info error"},
		{slog.LevelWarn, []string{"-v=6"}, "error"},
	} {
		if got := logged(row.level, row.args...); got != row.want {
			t.Errorf("%v %v: %s, want %s", row.level, row.args, got, row.want)
		}
	}
}
