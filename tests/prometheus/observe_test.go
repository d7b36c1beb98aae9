// Package prometheus checks what deploy/ has for operators with Prometheus' own parser: each alert and each panel uses a metric
// and labels that docs/metrics.md lists, which an end-to-end test compares with what a host serves.
package prometheus

import (
	"encoding/json"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// The labels that a scrape adds to each series.
var target = []string{"instance", "job", "namespace", "pod"}

var promql = parser.NewParser(parser.Options{})

// metrics reads docs/metrics.md: the labels of each series by its name.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	series := map[string][]string{}
	word := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.Contains(cells[1], "`") {
			continue
		}
		name := word.FindStringSubmatch(cells[1])[1]
		labels := slices.Clone(target)
		for _, label := range word.FindAllStringSubmatch(cells[3], -1) {
			labels = append(labels, label[1])
		}
		if strings.TrimSpace(cells[2]) != "histogram" {
			series[name] = labels
			continue
		}
		series[name+"_sum"], series[name+"_count"] = labels, labels
		series[name+"_bucket"] = append(slices.Clone(labels), "le")
	}
	if len(series) < 60 {
		t.Fatalf("docs/metrics.md has only %d series: is its table made otherwise?", len(series))
	}
	return series
}

// reader says which labels an expression's result has, and which series and labels it uses that are not served.
type reader struct {
	series   map[string][]string
	problems []string
}

func (r *reader) needs(labels, have []string, where string) {
	for _, label := range labels {
		if !slices.Contains(have, label) {
			r.problems = append(r.problems, "no label "+label+" in "+where)
		}
	}
}

func (r *reader) labels(expr parser.Expr) []string {
	switch expr := expr.(type) {
	case *parser.VectorSelector:
		have, served := r.series[expr.Name]
		if !served {
			r.problems = append(r.problems, "no metric "+expr.Name)
		}
		for _, matcher := range expr.LabelMatchers {
			if matcher.Name != model.MetricNameLabel {
				r.needs([]string{matcher.Name}, have, expr.String())
			}
		}
		return have
	case *parser.MatrixSelector:
		return r.labels(expr.VectorSelector)
	case *parser.SubqueryExpr:
		return r.labels(expr.Expr)
	case *parser.ParenExpr:
		return r.labels(expr.Expr)
	case *parser.AggregateExpr:
		have := r.labels(expr.Expr)
		r.needs(expr.Grouping, have, expr.String())
		if expr.Without {
			return without(have, expr.Grouping)
		}
		return expr.Grouping
	case *parser.Call:
		var have []string
		for _, argument := range expr.Args {
			if argument.Type() != parser.ValueTypeScalar {
				have = r.labels(argument)
			}
		}
		switch expr.Func.Name {
		case "absent":
			return nil
		case "histogram_quantile":
			r.needs([]string{"le"}, have, expr.String())
			return without(have, []string{"le"})
		}
		return have
	case *parser.BinaryExpr:
		left, right := r.labels(expr.LHS), r.labels(expr.RHS)
		match := expr.VectorMatching
		switch {
		case match == nil && expr.LHS.Type() == parser.ValueTypeScalar:
			return right
		case match == nil:
			return left
		case match.On:
			r.needs(match.MatchingLabels, left, expr.String())
			r.needs(match.MatchingLabels, right, expr.String())
			if match.Card == parser.CardOneToOne {
				return match.MatchingLabels
			}
		}
		return left
	}
	return nil
}

func without(labels, gone []string) []string {
	return slices.DeleteFunc(slices.Clone(labels), func(label string) bool { return slices.Contains(gone, label) })
}

// check reads an expression and the labels in the text next to it.
func check(t *testing.T, series map[string][]string, where, expr string, used []string) {
	t.Helper()
	parsed, err := promql.ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	reader := reader{series: series}
	reader.needs(used, reader.labels(parsed), "the result")
	for _, problem := range reader.problems {
		t.Errorf("%s: %s", where, problem)
	}
}

func words(text, pattern string) (found []string) {
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	return found
}

func TestAlertsAskForWhatIsServed(t *testing.T) {
	series := metrics(t)
	groups, errs := rulefmt.ParseFile("../../deploy/prometheus/alerts.yaml", false, model.UTF8Validation, promql, slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil || len(groups.Groups) == 0 {
		t.Fatal("no alerts")
	}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			if rule.Alert == "" {
				t.Errorf("%s has a rule that is no alert", group.Name)
			}
			check(t, series, rule.Alert, rule.Expr, words(rule.Annotations["summary"], `\$labels\.(\w+)`))
			if !slices.Contains([]string{"critical", "warning", "info"}, rule.Labels["severity"]) {
				t.Errorf("%s: severity %q", rule.Alert, rule.Labels["severity"])
			}
		}
	}
}

// The relevant parts of a dashboard.
type dashboard struct {
	Panels     []panel
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
}

type panel struct {
	ID      int
	Title   string
	Type    string
	Panels  []panel
	Targets []struct{ Expr, LegendFormat string }
}

func TestDashboardAsksForWhatIsServed(t *testing.T) {
	series := metrics(t)
	text, err := os.ReadFile("../../deploy/grafana/ccm-host.json")
	if err != nil {
		t.Fatal(err)
	}
	var board dashboard
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	for _, variable := range board.Templating.List {
		if variable.Type != "query" {
			continue
		}
		parts := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`).FindStringSubmatch(variable.Definition)
		if parts == nil {
			t.Errorf("variable %s: %q", variable.Name, variable.Definition)
			continue
		}
		check(t, series, "variable "+variable.Name, parts[1], parts[2:])
	}
	ids := map[int]bool{}
	asked := 0
	for _, panel := range board.Panels {
		if ids[panel.ID] {
			t.Errorf("two panels have the id %d", panel.ID)
		}
		ids[panel.ID] = true
		if panel.Type != "row" && len(panel.Targets) == 0 {
			t.Errorf("%s asks for nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			asked++
			expr := strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h").Replace(target.Expr)
			check(t, series, panel.Title, expr, words(target.LegendFormat, `\{\{(\w+)\}\}`))
		}
	}
	if asked < 20 {
		t.Errorf("only %d questions were found", asked)
	}
}
