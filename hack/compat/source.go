// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

var (
	metricName  = regexp.MustCompile(`^mooring_[a-z0-9_]*[a-z0-9]$`)
	reasonName  = regexp.MustCompile(`^([Rr]eason|[Ee]vent|Token|seed)[A-Z]`)
	reasonValue = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
)

// source reads names off the code that no page or manifest has all of: metrics, reasons of events and conditions, and the constants of the API packages, which
// are labels, annotations, finalizers, types of conditions and the like.
func source(root string) ([]string, error) {
	var out []string
	for _, top := range []string{"api", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && (d.Name() == "testdata" || d.Name() == "sim" || d.Name() == "testkit") {
				return filepath.SkipDir
			}
			if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			relative, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			out = append(out, names(file, filepath.ToSlash(filepath.Dir(relative)), top == "api")...)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// names are those of one file. Reasons go by the component that the file is of, the first folder below internal.
func names(file *ast.File, folder string, api bool) []string {
	component, _, _ := strings.Cut(strings.TrimPrefix(folder, "internal/"), "/")
	var out []string
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if value := text(n); !api && metricName.MatchString(value) {
				out = append(out, "metric "+value)
			}
		case *ast.ValueSpec:
			for i, name := range n.Names[:min(len(n.Names), len(n.Values))] {
				switch value := text(n.Values[i]); {
				case value == "":
				case api && name.IsExported():
					out = append(out, "constant "+folder+" "+name.Name+" "+value)
				case !api && reasonName.MatchString(name.Name) && reasonValue.MatchString(value):
					out = append(out, "reason "+component+" "+value)
				}
			}
		}
		return true
	})
	return out
}

// text is the value of a string literal, or empty.
func text(e ast.Expr) string {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return ""
	}
	value, err := strconv.Unquote(l.Value)
	if err != nil {
		return ""
	}
	return value
}
