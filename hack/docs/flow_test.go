// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	goconstant "go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/mooring-dev/mooring/"

// flow follows values back to the constants that they come from, through parameters, fields, variables and results of our own packages. Packages of
// others are not read: what is theirs has no type here.
type flow struct {
	t        *testing.T
	fset     *token.FileSet
	info     *types.Info
	packages map[string]*types.Package
	files    []*ast.File
	// visited are the variables and functions that were followed already; found are the constants.
	visited map[any]bool
	found   map[string]bool
}

// newFlow reads packages, and those of ours that they import.
func newFlow(t *testing.T, folders ...string) *flow {
	t.Helper()
	f := &flow{
		t: t, fset: token.NewFileSet(), packages: map[string]*types.Package{}, visited: map[any]bool{}, found: map[string]bool{},
		info: &types.Info{
			Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
			Selections: map[*ast.SelectorExpr]*types.Selection{},
		},
	}
	for _, folder := range folders {
		if _, err := f.Import(module + folder); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// Import implements types.Importer.
func (f *flow) Import(path string) (*types.Package, error) {
	if p := f.packages[path]; p != nil {
		return p, nil
	}
	folder, ours := strings.CutPrefix(path, module)
	if !ours {
		p := types.NewPackage(path, filepath.Base(path))
		p.MarkComplete()
		f.packages[path] = p
		return p, nil
	}
	dir := filepath.Join("..", "..", filepath.FromSlash(folder))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(f.fset, filepath.Join(dir, e.Name()), nil, 0)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	// What uses others' packages does not check, which is no matter here.
	config := types.Config{Importer: f, Error: func(error) {}}
	p, _ := config.Check(path, f.fset, files, f.info)
	f.packages[path], f.files = p, append(f.files, files...)
	return p, nil
}

// follow finds the constants that an expression may be.
func (f *flow) follow(e ast.Expr) {
	if v := f.info.Types[e].Value; v != nil && v.Kind() == goconstant.String {
		f.found[goconstant.StringVal(v)] = true
		return
	}
	switch e := e.(type) {
	case *ast.ParenExpr:
		f.follow(e.X)
	case *ast.Ident:
		f.variable(e, f.object(e))
	case *ast.SelectorExpr:
		if s := f.info.Selections[e]; s != nil {
			f.variable(e, s.Obj())
			return
		}
		// The reason of a condition that is read: whoever wrote it is followed himself.
		if e.Sel.Name != "Reason" {
			f.lost(e)
		}
	case *ast.IndexExpr:
		all, ok := e.X.(*ast.CompositeLit)
		if !ok {
			f.lost(e)
			return
		}
		for _, one := range all.Elts {
			f.follow(one.(*ast.KeyValueExpr).Value) //nolint:forcetypeassert // a map has nothing else
		}
	case *ast.CallExpr:
		f.call(e, 0)
	default:
		f.lost(e)
	}
}

// lost fails for what cannot be followed.
func (f *flow) lost(n ast.Node) {
	f.t.Helper()
	f.t.Errorf("%s: it cannot be told from which constants this reason comes: name them in the code, or teach the test", f.fset.Position(n.Pos()))
}

func (f *flow) object(id *ast.Ident) types.Object {
	if o := f.info.Uses[id]; o != nil {
		return o
	}
	return f.info.Defs[id]
}

// call follows the result of a call, or what is converted.
func (f *flow) call(e *ast.CallExpr, result int) {
	if f.info.Types[e.Fun].IsType() && len(e.Args) == 1 {
		// A type of ours whose constants are the reasons of conditions: all of them may be it.
		if named, ok := f.info.Types[e.Args[0]].Type.(*types.Named); ok {
			f.constantsOf(named.Obj())
			return
		}
		f.follow(e.Args[0])
		return
	}
	var id *ast.Ident
	switch fun := e.Fun.(type) {
	case *ast.Ident:
		id = fun
	case *ast.SelectorExpr:
		id = fun.Sel
	}
	if id == nil || f.object(id) == nil {
		f.lost(e)
		return
	}
	f.results(e, f.object(id), result)
}

// constantsOf are all constants of a type.
func (f *flow) constantsOf(of *types.TypeName) {
	scope := of.Pkg().Scope()
	for _, name := range scope.Names() {
		if c, ok := scope.Lookup(name).(*types.Const); ok && types.Identical(c.Type(), of.Type()) {
			f.found[goconstant.StringVal(c.Val())] = true
		}
	}
}

// results follows one of what a function returns.
func (f *flow) results(at ast.Node, function types.Object, result int) {
	type part struct {
		function types.Object
		result   int
	}
	if f.visited[part{function, result}] {
		return
	}
	f.visited[part{function, result}] = true
	body := f.body(function)
	if body == nil {
		f.lost(at)
		return
	}
	ast.Inspect(body, func(n ast.Node) bool {
		if r, ok := n.(*ast.ReturnStmt); ok && result < len(r.Results) {
			f.follow(r.Results[result])
		}
		_, inner := n.(*ast.FuncLit)
		return !inner
	})
}

// body is that of a function of ours, nil for others'.
func (f *flow) body(function types.Object) *ast.BlockStmt {
	for _, file := range f.files {
		for _, d := range file.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && f.info.Defs[d.Name] == function {
				return d.Body
			}
		}
	}
	return nil
}

// variable follows all that a variable, a parameter or a field is ever given.
func (f *flow) variable(at ast.Node, v types.Object) {
	if v == nil {
		f.lost(at)
		return
	}
	if f.visited[v] {
		return
	}
	f.visited[v] = true
	given := false
	for _, file := range f.files {
		ast.Inspect(file, func(n ast.Node) bool {
			given = f.gives(n, v) || given
			return true
		})
	}
	if !given {
		f.lost(at)
	}
}

// gives follows what a node gives to a variable, and says whether it does.
func (f *flow) gives(n ast.Node, v types.Object) bool {
	switch n := n.(type) {
	case *ast.AssignStmt:
		return f.assigns(n, v)
	case *ast.CompositeLit:
		return f.composes(n, v)
	case *ast.FuncDecl:
		return f.passes(n.Type, f.info.Defs[n.Name], v)
	}
	return false
}

func (f *flow) assigns(n *ast.AssignStmt, v types.Object) bool {
	given := false
	for i, left := range n.Lhs {
		if len(n.Lhs) == len(n.Rhs) {
			if literal, ok := n.Rhs[i].(*ast.FuncLit); ok {
				if id, ok := left.(*ast.Ident); ok {
					given = f.passes(literal.Type, f.object(id), v) || given
				}
			}
		}
		if f.target(left) != v {
			continue
		}
		given = true
		if len(n.Lhs) == len(n.Rhs) {
			f.follow(n.Rhs[i])
		} else if call, ok := n.Rhs[0].(*ast.CallExpr); ok {
			f.call(call, i)
		} else {
			f.lost(n)
		}
	}
	return given
}

// target is the variable or the field that is assigned to, nil for what is none of ours.
func (f *flow) target(left ast.Expr) types.Object {
	switch left := left.(type) {
	case *ast.Ident:
		return f.object(left)
	case *ast.SelectorExpr:
		if s := f.info.Selections[left]; s != nil {
			return s.Obj()
		}
	}
	return nil
}

func (f *flow) composes(n *ast.CompositeLit, field types.Object) bool {
	given := false
	for i, element := range n.Elts {
		if kv, ok := element.(*ast.KeyValueExpr); ok {
			if key, ok := kv.Key.(*ast.Ident); ok && f.info.Uses[key] == field {
				given = true
				f.follow(kv.Value)
			}
			continue
		}
		if t := f.info.Types[n].Type; t != nil {
			if s, ok := t.Underlying().(*types.Struct); ok && i < s.NumFields() && s.Field(i) == field {
				given = true
				f.follow(element)
			}
		}
	}
	return given
}

// passes follows what all callers of a function pass for a parameter.
func (f *flow) passes(signature *ast.FuncType, function, parameter types.Object) bool {
	index, at := 0, -1
	for _, p := range signature.Params.List {
		for _, name := range p.Names {
			if f.info.Defs[name] == parameter {
				at = index
			}
			index++
		}
	}
	if at < 0 {
		return false
	}
	given := false
	for _, file := range f.files {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || at >= len(call.Args) {
				return true
			}
			var id *ast.Ident
			switch fun := call.Fun.(type) {
			case *ast.Ident:
				id = fun
			case *ast.SelectorExpr:
				id = fun.Sel
			}
			if id != nil && f.object(id) == function {
				given = true
				f.follow(call.Args[at])
			}
			return true
		})
	}
	return given
}

// recorded follows the reason of each call of a recorder of Events in a package, and says how many there are.
func (f *flow) recorded(folder string) int {
	calls := 0
	for _, file := range f.filesOf(folder) {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			s, ok := call.Fun.(*ast.SelectorExpr)
			// (object, type, reason, message) of client-go's record, (regarding, related, type, reason, action, note, …) of its events.
			switch {
			case ok && s.Sel.Name == "Event" && len(call.Args) == 4:
				f.follow(call.Args[2])
			case ok && s.Sel.Name == "Eventf" && len(call.Args) >= 6:
				f.follow(call.Args[3])
			default:
				return true
			}
			calls++
			return true
		})
	}
	return calls
}

// concluded follows the reason of each condition that a package makes or changes, and says how many there are.
func (f *flow) concluded(folder string) int {
	places := 0
	for _, file := range f.filesOf(folder) {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CompositeLit:
				if s, ok := n.Type.(*ast.SelectorExpr); ok && s.Sel.Name == "Condition" {
					for _, element := range n.Elts {
						if kv, ok := element.(*ast.KeyValueExpr); ok && kv.Key.(*ast.Ident).Name == "Reason" { //nolint:forcetypeassert // a field
							places++
							f.follow(kv.Value)
						}
					}
				}
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					if s, ok := left.(*ast.SelectorExpr); ok && s.Sel.Name == "Reason" && f.info.Selections[s] == nil && len(n.Lhs) == len(n.Rhs) {
						places++
						f.follow(n.Rhs[i])
					}
				}
			}
			return true
		})
	}
	return places
}

func (f *flow) filesOf(folder string) []*ast.File {
	return slices.DeleteFunc(slices.Clone(f.files), func(file *ast.File) bool {
		path := filepath.ToSlash(f.fset.Position(file.Pos()).Filename)
		return strings.TrimPrefix(path, "../../") != folder+"/"+filepath.Base(path)
	})
}
