// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// Judged is how long the value of an annotation may be to be looked at, in characters: it bounds what an expression costs the API server. The
// controller looks at all of them.
const Judged = 400

// lit writes a string as CEL does.
func lit(s string) string { return strconv.Quote(s) }

// list writes strings as a list.
func list(all []string) string {
	quoted := make([]string, len(all))
	for i, s := range all {
		quoted[i] = lit(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// sum joins lists, one to a line.
func sum(lists ...string) string { return strings.Join(lists, " +\n") }

// when is a list of one sentence if the condition holds, else an empty one.
func when(condition, sentence string) string { return "(" + condition + " ? [" + sentence + "] : [])" }

// quoted writes a value between quotation marks as annotation.Quote does: of a long one only the beginning.
func quoted(v string) string {
	return fmt.Sprintf(`strings.quote(size(%[1]s) > 100 ? %[1]s.substring(0, 100) + "…" : %[1]s)`, v)
}

// wrong is the sentence of an annotation.Error: an annotation by name (an expression), its value, and the end of the sentence.
func wrong(name, value, problem string) string {
	return `"annotation " + ` + name + ` + " is " + ` + quoted(value) + ` + ", ` + strings.TrimPrefix(lit(problem), `"`)
}

// short reports whether a value is looked at.
func short(v string) string { return fmt.Sprintf("size(%s) <= %d", v, Judged) }

// significant are the digits of a number without sign and leading zeros.
func significant(v string) string { return v + `.find("[1-9][0-9]*$")` }

// integer reports whether strconv.Atoi takes a value: 64 bits, a sign allowed.
func integer(v string) string {
	return fmt.Sprintf(`(%[1]s.matches("^[+-]?[0-9]+$") && (size(%[2]s) < 19 || size(%[2]s) == 19 && `+
		`%[2]s <= (%[1]s.startsWith("-") ? "9223372036854775808" : "9223372036854775807")))`, v, significant(v))
}

// unsigned reports whether strconv.ParseUint takes a value: 64 bits, digits only.
func unsigned(v string) string {
	return fmt.Sprintf(`(%[1]s.matches("^[0-9]+$") && (size(%[2]s) < 20 || size(%[2]s) == 20 && %[2]s <= "18446744073709551615"))`, v, significant(v))
}

// right reports whether a value has its form.
func right(f annotation.Form, v string) string {
	check := "true"
	switch f.Kind {
	case annotation.KindText:
	case annotation.KindChoice:
		choices := f.Choices
		if f.Blank {
			choices = append([]string{""}, choices...)
		}
		return v + " in " + list(choices)
	case annotation.KindBoolean:
		yes, no := annotation.Booleans()
		return v + " in " + list(append(yes, no...))
	case annotation.KindInteger:
		check = integer(v)
	case annotation.KindCount:
		check = integer(v) + ` && !(` + v + `.startsWith("-") && ` + significant(v) + ` != "")`
	case annotation.KindSeconds:
		check = unsigned(v)
	case annotation.KindUUID:
		check = v + ".matches(" + lit(f.Pattern) + ")"
	case annotation.KindDomains:
		check = fmt.Sprintf(`%s.split(",").all(w, size(w) <= %d && w.matches(%s))`, v, annotation.LongestDomain, lit(f.Pattern))
	case annotation.KindPorts:
		check = v + `.split(",").all(w, ` + integer("w") + ")"
	}
	if f.Blank {
		check = v + ` == "" || ` + check
	}
	return "!(" + short(v) + ") || " + check
}

// A side is the Service as it is to be, or as it was: the same expressions over another object.
type side struct{ name, object string }

func sides() []side { return []side{{"new", "object"}, {"old", "oldObject"}} }

// variable refers to one of the side's variables.
func (s side) variable(name string) string { return "variables." + s.name + name }

// has reports whether an annotation is there.
func (s side) has(name string) string { return lit(name) + " in " + s.variable("Annotations") }

// value is an annotation's, empty for none.
func (s side) value(name string) string {
	return s.variable("Annotations") + "[?" + lit(name) + `].orValue("")`
}

// wrong is the sentence of an annotation.Error about one annotation.
func (s side) wrong(name, problem string) string { return wrong(lit(name), s.value(name), problem) }

// spliced writes a literal with an expression in the place of a mark.
func spliced(literal, mark, expression string) string {
	return strings.Replace(literal, strings.Trim(mark, `"`), `" + `+expression+` + "`, 1)
}
