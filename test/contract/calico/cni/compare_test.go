// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package cni

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// field is a field that differs by nature between two runs, whoever writes.
type field struct {
	// path matches where the field is: the key, a space and the fields' names joined by dots.
	path *regexp.Regexp
	// common replaces the value by what must be equal nevertheless.
	common func(c *cluster, key, value string) string
	reason string
}

// natural are all such fields. Each must occur, so that none outlives its reason.
func natural() map[string]field {
	same := func(*cluster, string, string) string { return "present" }
	digits := func(_ *cluster, _, value string) string {
		return regexp.MustCompile(`\d+`).ReplaceAllString(value, "N")
	}
	return map[string]field{
		"uid":               {regexp.MustCompile(` metadata\.uid$`), same, "drawn at random for each object"},
		"creationTimestamp": {regexp.MustCompile(` metadata\.creationTimestamp$`), digits, "the clock"},
		"timestamp":         {regexp.MustCompile(` (spec\.)?attributes\.\d+\.secondary\.timestamp$`), digits, "the clock, with as many decimals as are not zero"},
		"clusterGUID":       {regexp.MustCompile(` spec\.clusterGUID$`), same, "drawn at random for each cluster, before the first pod"},
		"sequenceNumber":    {regexp.MustCompile(` (spec\.)?sequenceNumber(ForAllocation\.\d+)?$`), (*cluster).sinceFirst, "a block begins at the clock and counts its writes from there"},
		"mac":               {regexp.MustCompile(` spec\.mac$`), unicast, "drawn at random by the kernel"},
	}
}

// naturalInKubernetes are those that occur only with the kubernetes datastore.
func naturalInKubernetes() map[string]field {
	drop := func(*cluster, string, string) string { return "" }
	same := func(*cluster, string, string) string { return "present" }
	return map[string]field{
		"resourceVersion": {regexp.MustCompile(` metadata\.resourceVersion$`), same, "counts all writes to the API server's etcd"},
		"metadata":        {regexp.MustCompile(` metadata\.annotations\.projectcalico\.org/metadata$`), digits, "Calico's copy of the object's metadata, with the time of its creation"},
		"managedFields":   {regexp.MustCompile(` metadata\.managedFields\.`), drop, "names the program and the time of a write"},
	}
}

// digits replaces numbers: the form of a time stays.
func digits(_ *cluster, _, value string) string {
	return regexp.MustCompile(`\d+`).ReplaceAllString(value, "N")
}

// sinceFirst is a sequence number less the first one that was seen of the block.
func (c *cluster) sinceFirst(key, value string) string {
	number, err := strconv.ParseInt(value, 10, 64)
	c.must(err)
	if _, seen := c.began[key]; !seen {
		c.began[key] = number
	}
	return strconv.FormatInt(number-c.began[key], 10)
}

// unicast replaces an address that a kernel could have drawn: locally administered, and not of a group (IEEE 802, section 8.2.2).
func unicast(_ *cluster, _, value string) string {
	return regexp.MustCompile(`^"[0-9a-f][26ae](:[0-9a-f]{2}){5}"$`).ReplaceAllString(value, "local unicast address")
}

// contents are the fields of all keys of Calico's datastore, flat. What differs by nature is replaced, and counted in occurred.
func (c *cluster) contents(occurred map[string]int) map[string]map[string]string {
	c.t.Helper()
	out := map[string]map[string]string{}
	if c.etcd != nil {
		for key, value := range c.etcd.Dump(c.t) {
			out[key] = c.common(key, c.decode(value), natural(), occurred)
		}
	} else {
		fields := natural()
		maps.Copy(fields, naturalInKubernetes())
		for key, value := range c.objects() {
			out[key] = c.common(key, value, fields, occurred)
		}
	}
	maps.DeleteFunc(c.began, func(key string, _ int64) bool { return out[key] == nil })
	return out
}

// decode reads a value of etcd's.
func (c *cluster) decode(value string) any {
	c.t.Helper()
	decoder := json.NewDecoder(strings.NewReader(value))
	decoder.UseNumber()
	var decoded any
	c.must(decoder.Decode(&decoded))
	return decoded
}

// common are the fields of a value, flat, without what differs by nature.
func (c *cluster) common(key string, value any, fields map[string]field, occurred map[string]int) map[string]string {
	c.t.Helper()
	flat := map[string]string{}
	flatten(flat, "", value)
	for _, path := range slices.Sorted(maps.Keys(flat)) {
		for name, field := range fields {
			if !field.path.MatchString(key + " " + path) {
				continue
			}
			occurred[name]++
			if flat[path] = field.common(c, key, flat[path]); flat[path] == "" {
				delete(flat, path)
			}
		}
	}
	return flat
}

// writes are the changes of etcd since the last call, in their order. What is left of a crash is what a prefix of them has written.
func (c *cluster) writes() []string {
	c.t.Helper()
	if c.etcd == nil {
		return nil
	}
	last := c.etcd.Revision(c.t)
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	var out []string
	for changes := c.etcd.Client.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(c.seen+1)); c.seen < last; {
		response, open := <-changes
		if !open || response.Err() != nil {
			c.t.Fatalf("etcd shows no changes up to revision %d: %v", last, response.Err())
		}
		for _, event := range response.Events {
			c.seen = event.Kv.ModRevision
			key, change := string(event.Kv.Key), event.Type.String()+" "+string(event.Kv.Key)
			if event.Type == clientv3.EventTypePut {
				change += " " + toJSON(c.common(key, c.decode(string(event.Kv.Value)), natural(), map[string]int{}))
			} else {
				delete(c.began, key)
			}
			out = append(out, change)
		}
	}
	return out
}

// objects are all objects of Calico's kinds, the Nodes, and of pods what is not the API server's.
func (c *cluster) objects() map[string]any {
	c.t.Helper()
	client, out := dynamic.NewForConfigOrDie(c.api.Config), map[string]any{}
	for _, kind := range kinds(c.t) {
		list, err := client.Resource(kind).List(c.t.Context(), metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		c.must(err)
		for _, object := range list.Items {
			if kind.Resource == "pods" {
				unstructured.RemoveNestedField(object.Object, "spec") // the volume of its token has a name drawn by the API server
			}
			out[kind.Resource+"/"+object.GetNamespace()+"/"+object.GetName()] = object.Object
		}
	}
	return out
}

// kinds are the pods, the Nodes and Calico's kinds.
func kinds(t *testing.T) []schema.GroupVersionResource {
	t.Helper()
	out := []schema.GroupVersionResource{{Version: "v1", Resource: "pods"}, {Version: "v1", Resource: "nodes"}}
	for _, crd := range controlplane.CalicoCRDs(t) {
		out = append(out, schema.GroupVersionResource{Group: crd.Spec.Group, Version: crd.Spec.Versions[0].Name, Resource: crd.Spec.Names.Plural})
	}
	return out
}

// flatten writes the leaves of a value, as JSON, by their paths. Empty lists and objects are leaves as well.
func flatten(out map[string]string, path string, value any) {
	inner := func(name string, value any) { flatten(out, strings.TrimPrefix(path+"."+name, "."), value) }
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			inner(name, field)
		}
		if len(v) > 0 {
			return
		}
	case []any:
		for i, item := range v {
			switch item.(type) {
			case map[string]any, []any:
				inner(strconv.Itoa(i), item)
			default: // a list of numbers or words is one value
				out[path] = toJSON(value)
				return
			}
		}
		if len(v) > 0 {
			return
		}
	}
	out[path] = toJSON(value)
}

func toJSON(value any) string {
	text, _ := json.Marshal(value) //nolint:errchkjson // it was read from JSON
	return string(text)
}

// differences are what is not equal in two contents, in order: "KEY FIELD: ...".
func differences(plugin, simulator map[string]map[string]string) []string {
	var out []string
	for _, key := range union(plugin, simulator) {
		ours, theirs := simulator[key], plugin[key]
		if ours == nil || theirs == nil {
			out = append(out, fmt.Sprintf("%s: written by the plugin %t, by the simulator %t", key, theirs != nil, ours != nil))
			continue
		}
		for _, path := range union(theirs, ours) {
			if ours[path] != theirs[path] {
				out = append(out, fmt.Sprintf("%s %s: the plugin wrote %s, the simulator %s", key, path, theirs[path], ours[path]))
			}
		}
	}
	return out
}

// union are the keys of both maps in order.
func union[V any](a, b map[string]V) []string {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return slices.Sorted(maps.Keys(both))
}
