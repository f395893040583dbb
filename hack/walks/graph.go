// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/callgraph"
	"golang.org/x/tools/go/callgraph/cha"
	"golang.org/x/tools/go/callgraph/vta"
	"golang.org/x/tools/go/packages"
	"golang.org/x/tools/go/ssa"
	"golang.org/x/tools/go/ssa/ssautil"
)

// function is a declared function or method of this module. A function literal belongs to the declaration that contains it, a method that is promoted
// by embedding to the method that was declared, and an instance of a generic function to the generic one.
type function struct {
	// name is the import path below the module, then the receiver and the function: "internal/nodesync.MakePlan", "internal/calico.(*Etcd).Snapshot".
	name string
	// folder and file are where it is declared, both below the module's root.
	folder, file string
	// calls are the functions that it may call, in the order of the source, each once.
	calls []*function
}

// graph is the static call graph of this module without tests.
type graph struct {
	functions map[string]*function
	// methods counts, by package and type, what a pointer to a struct offers: its own methods of this module, and those promoted by embedding.
	methods map[string]map[string]int
}

const loaded = packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedTypes | packages.NeedTypesSizes |
	packages.NeedSyntax | packages.NeedTypesInfo | packages.NeedModule

// load reads the packages that match the patterns below a folder and makes their call graph.
func load(dir string, patterns ...string) (*graph, error) {
	config := &packages.Config{Mode: loaded, Dir: dir, Fset: token.NewFileSet()}
	initial, err := packages.Load(config, patterns...)
	if err != nil {
		return nil, fmt.Errorf("loading packages: %w", err)
	}
	var broken []error
	for _, p := range initial {
		for _, e := range p.Errors {
			broken = append(broken, e)
		}
	}
	if len(broken) > 0 {
		return nil, fmt.Errorf("loading packages: %w", errors.Join(broken...))
	}
	program, built := ssautil.Packages(initial, ssa.InstantiateGenerics)
	program.Build()
	l := loader{
		fset: config.Fset, root: initial[0].Module.Dir, module: initial[0].Module.Path,
		graph: &graph{functions: map[string]*function{}, methods: map[string]map[string]int{}},
	}
	l.countMethods(built)
	l.connect(vta.CallGraph(ssautil.AllFunctions(program), cha.CallGraph(program)))
	return l.graph, nil
}

// loader turns what x/tools knows into a graph.
type loader struct {
	fset         *token.FileSet
	root, module string
	graph        *graph
}

// call is an edge with its place in the source.
type call struct {
	at     token.Pos
	callee *function
}

// connect adds an edge for each call, and for each place where a function is named without being called: there it is handed on, to a queue, a watch or an
// engine, which calls it later.
func (l loader) connect(calls *callgraph.Graph) {
	edges := map[*function][]call{}
	for f, node := range calls.Nodes {
		from := l.declared(f)
		if from == nil {
			continue
		}
		for _, e := range node.Out {
			l.add(edges, from, e.Callee.Func, e.Pos())
		}
		for _, b := range f.Blocks {
			for _, i := range b.Instrs {
				for _, operand := range i.Operands(nil) {
					if named, ok := (*operand).(*ssa.Function); ok {
						l.add(edges, from, named, i.Pos())
					}
				}
			}
		}
	}
	for from, all := range edges {
		slices.SortFunc(all, func(a, b call) int {
			return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.callee.name, b.callee.name))
		})
		for _, c := range all {
			if !slices.Contains(from.calls, c.callee) {
				from.calls = append(from.calls, c.callee)
			}
		}
	}
}

// add is an edge to a function, or through one that the compiler made (a promoted method, a method value) to what that calls.
func (l loader) add(edges map[*function][]call, from *function, to *ssa.Function, at token.Pos) {
	if to.Synthetic != "" && to.Object() == nil && to.Parent() == nil {
		for _, b := range to.Blocks {
			for _, i := range b.Instrs {
				if c, ok := i.(ssa.CallInstruction); ok {
					if callee := c.Common().StaticCallee(); callee != nil {
						l.add(edges, from, callee, at)
					}
				}
			}
		}
		return
	}
	if callee := l.declared(to); callee != nil && callee != from {
		edges[from] = append(edges[from], call{at: at, callee: callee})
	}
}

// declared returns the declaration that a function belongs to, nil for one outside this module.
func (l loader) declared(f *ssa.Function) *function {
	for f.Parent() != nil {
		f = f.Parent()
	}
	if origin := f.Origin(); origin != nil {
		f = origin
	}
	object, ok := f.Object().(*types.Func)
	if !ok || object.Pkg() == nil || !strings.HasPrefix(object.Pkg().Path(), l.module+"/") {
		return nil
	}
	object = object.Origin()
	name := strings.ReplaceAll(object.FullName(), l.module+"/", "")
	if known := l.graph.functions[name]; known != nil {
		return known
	}
	path, err := filepath.Rel(l.root, l.fset.Position(object.Pos()).Filename)
	if err != nil {
		return nil
	}
	out := &function{name: name, folder: filepath.ToSlash(filepath.Dir(path)), file: filepath.ToSlash(path)}
	l.graph.functions[name] = out
	return out
}

// countMethods counts the method set of a pointer to each named struct.
func (l loader) countMethods(all []*ssa.Package) {
	for _, p := range all {
		for _, member := range p.Members {
			t, ok := member.(*ssa.Type)
			if !ok {
				continue
			}
			if _, isStruct := t.Type().Underlying().(*types.Struct); !isStruct {
				continue
			}
			own := 0
			set := types.NewMethodSet(types.NewPointer(t.Type()))
			for method := range set.Methods() {
				if from := method.Obj().Pkg(); from != nil && strings.HasPrefix(from.Path(), l.module+"/") {
					own++
				}
			}
			folder := strings.TrimPrefix(p.Pkg.Path(), l.module+"/")
			if l.graph.methods[folder] == nil {
				l.graph.methods[folder] = map[string]int{}
			}
			l.graph.methods[folder][t.Name()] = own
		}
	}
}
