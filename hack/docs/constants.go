// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// constant is a constant of the code whose value is a string, and what its comment says.
type constant struct {
	name, value string
	// kind is the name of its type, "" for none.
	kind string
	// doc is the comment above or alongside it, as one line, without the constant's name.
	doc string
}

// constants reads the string constants of a package, in the order of files and lines. Tests have no part in it.
func constants(root, folder string) ([]constant, error) {
	paths, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*.go"))
	if err != nil {
		return nil, err
	}
	var out []constant
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("reading the constants of %s: %w", folder, err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if group, ok := n.(*ast.GenDecl); ok && group.Tok == token.CONST {
				for _, spec := range group.Specs {
					value := spec.(*ast.ValueSpec) //nolint:forcetypeassert // a group of constants has nothing else
					if value.Doc == nil && !group.Lparen.IsValid() {
						value.Doc = group.Doc
					}
					out = append(out, constantsOf(value)...)
				}
			}
			return true
		})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no constants in %s", folder)
	}
	return out, nil
}

func constantsOf(spec *ast.ValueSpec) []constant {
	kind := ""
	if named, ok := spec.Type.(*ast.Ident); ok {
		kind = named.Name
	}
	var out []constant
	for i, value := range spec.Values {
		literal, ok := value.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING || i >= len(spec.Names) {
			continue
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil {
			continue
		}
		out = append(out, constant{spec.Names[i].Name, text, kind, said(spec, spec.Names[i].Name)})
	}
	return out
}

// warning is a sentence for anyone who changes the code.
var warning = regexp.MustCompile(` ?\b(It |They )?MUST (NOT|not) [^.]*\.`)

// symbol is a link to a symbol of the code, as godoc has them.
var symbol = regexp.MustCompile(`\[(\w+(?:\.\w+)*)\]`)

// said is what the comment of a constant says of it, from a capital letter to a full stop.
func said(spec *ast.ValueSpec, name string) string {
	text := spec.Doc.Text()
	if text == "" {
		text = spec.Comment.Text()
	}
	text = strings.Join(strings.Fields(text), " ")
	text = regexp.MustCompile(`^`+regexp.QuoteMeta(name)+`[,:]? +`).ReplaceAllString(text, "")
	text = warning.ReplaceAllString(text, "")
	text = symbol.ReplaceAllString(text, "$1")
	if text == "" {
		return ""
	}
	text = strings.ToUpper(text[:1]) + text[1:]
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}

// valuesOf are the values of all constants of a type, or the names of all kinds of a sum type, in the code's order.
func valuesOf(root, folder, kind string) ([]string, error) {
	all, err := constants(root, folder)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, c := range all {
		if c.kind == kind && c.value != "" {
			out = append(out, c.value)
		}
	}
	if len(out) == 0 {
		out, err = kindsOf(root, folder, kind)
	}
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("no constant and no kind of type %s in %s", kind, folder)
	}
	return out, err
}

// kindsOf are the names of the kinds of a sum type: in its file, the structs that embed what all have and say what they
// are (String).
func kindsOf(root, folder, sum string) (out []string, err error) {
	paths, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*.go"))
	for _, path := range paths {
		file, parseErr := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err = errors.Join(err, parseErr); err != nil {
			return nil, err
		}
		structs, says, declared := []string(nil), map[string]bool{}, false
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				declared = declared || n.Name.Name == sum
				if s, is := n.Type.(*ast.StructType); is && len(s.Fields.List) > 0 && len(s.Fields.List[0].Names) == 0 {
					structs = append(structs, n.Name.Name)
				}
			case *ast.FuncDecl:
				if n.Recv != nil && n.Name.Name == "String" {
					says[fmt.Sprint(n.Recv.List[0].Type)] = true
				}
			}
			return true
		})
		if declared {
			out = slices.DeleteFunc(structs, func(name string) bool { return !says[name] })
		}
	}
	return out, nil
}
