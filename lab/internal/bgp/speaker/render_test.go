// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/projectcalico/calico/confd/pkg/resource/template"

	"github.com/mooring-dev/mooring/internal/routereflector/birdtemplates"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/calicobird"
)

// store is a datastore of confd that never changes.
type store map[string]string

func (store) SetPrefixes([]string) error                      { return nil }
func (s store) GetValues([]string) (map[string]string, error) { return maps.Clone(s), nil }
func (store) GetCurrentRevision() uint64                      { return 1 }
func (store) WatchPrefix(string, []string, uint64, chan bool) (string, error) {
	return "", nil
}

// peer is a neighbor as confd has it of a BGPPeer.
func peer(ip, as, clusterID string) string {
	return fmt.Sprintf(`{"ip":%q,"as_num":%q,"local_as_num":"0","rr_cluster_id":%q,"password":null,"source_addr":"UseNodeIP","port":0,"keep_next_hop":false,`+
		`"restart_time":"","calico_node":false,"num_allow_local_as":0,"ttl_security":0,"reachable_by":"","filters":null,"passive_mode":false,`+
		`"local_bgp_peer":false,"next_hop_mode":""}`, ip, as, clusterID)
}

// cluster are four nodes, the second of which is a route reflector with the third and the first as its clients, with
// an external router in the same AS. The fourth has an AS number of its own.
func cluster(self string) store {
	s := store{
		"/calico/bgp/v1/global/as_num":    "64512",
		"/calico/bgp/v1/global/node_mesh": `{"enabled":false}`,
		"/calico/bgp/v1/global/loglevel":  "none",
	}
	for i := range 4 {
		host := fmt.Sprintf("/calico/bgp/v1/host/n%d", i+1)
		s[host+"/ip_addr_v4"], s[host+"/ip_addr_v6"] = fmt.Sprintf("10.0.0.%d", i+1), fmt.Sprintf("fd00::%d", i+1)
		s[host+"/rr_cluster_id"] = ""
	}
	s["/calico/bgp/v1/host/n2/rr_cluster_id"] = "244.0.0.1"
	s["/calico/bgp/v1/host/n4/as_num"] = "64514"
	own := "/calico/bgp/v1/host/" + self
	for key, format := range map[string]string{"peer_v4": "10.0.0.%s", "peer_v6": "fd00::%s"} {
		for _, last := range []string{"1", "2", "3", "4", "99"} {
			ip, as := fmt.Sprintf(format, last), "64512"
			if last == "4" {
				as = "64514"
			}
			if ip != s[own+"/ip_addr_v4"] && ip != s[own+"/ip_addr_v6"] {
				s[own+"/"+key+"/"+ip] = peer(ip, as, s["/calico/bgp/v1/host/n"+last+"/rr_cluster_id"])
			}
		}
	}
	return s
}

// render has Calico's confd render a template for the node n2, and returns the file.
func render(t *testing.T, file, text string) string {
	t.Helper()
	dir := t.TempDir()
	for _, folder := range []string{"conf.d", "templates", "config"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	name := strings.TrimSuffix(file, ".template")
	path := filepath.Join(dir, "config", name)
	resource := fmt.Sprintf("[template]\nsrc = %q\ndest = %q\nprefix = \"/calico/\"\nkeys = [\"/bgp/v1/host\", \"/bgp/v1/global\"]\n", file, path)
	for at, content := range map[string]string{filepath.Join("conf.d", name+".toml"): resource, filepath.Join("templates", file): string(adapt([]byte(text), dir))} {
		if err := os.WriteFile(filepath.Join(dir, at), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// What the other templates of Calico render to defines the filters that this one names.
	const filters = "filter calico_kernel_programming { accept; }\nfunction calico_export_to_bgp_peers(bool same) { accept; }\n"
	family := strings.TrimSuffix(name, ".cfg")
	for at, content := range map[string]string{family + "_aggr.cfg": "", family + "_ipam.cfg": filters} {
		if err := os.WriteFile(filepath.Join(dir, "config", at), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := template.Process(template.Config{
		ConfDir: dir, ConfigDir: filepath.Join(dir, "conf.d"), TemplateDir: filepath.Join(dir, "templates"), StoreClient: cluster("n2"), SyncOnly: true,
	})
	if err != nil {
		t.Fatalf("rendering %s: %v", file, err)
	}
	return path
}

// TestBIRDParsesPatchedTemplates has confd render each version's patched templates for a reflector, and BIRD read the
// result.
func TestBIRDParsesPatchedTemplates(t *testing.T) {
	t.Setenv("NODENAME", "n2")
	bird, bird6, err := FindBird()
	if err != nil {
		testkit.Skip(t, "%v", err)
	}
	programs := map[string]string{birdtemplates.IPv4File: bird, birdtemplates.IPv6File: bird6}
	for _, v := range calicobird.Versions(t) {
		patched, err := birdtemplates.Patch(v.File, v.Text)
		if err != nil {
			t.Fatal(err)
		}
		path := render(t, v.File, patched)
		command := exec.CommandContext(t.Context(), programs[v.File], "-p", "-c", path)
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("%s of Calico %s: %v\n%s", v.File, v.Name, err, out)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		judgeRendered(t, v, string(content))
	}
}

// judgeRendered sees which of the reflector's sessions have which options: BFD with nodes alone, and the passive side
// towards nodes of the same AS with a higher address.
func judgeRendered(t *testing.T, v calicobird.Version, text string) {
	t.Helper()
	for _, c := range []struct {
		last         string
		bfd, passive bool
	}{{"1", true, false}, {"3", true, true}, {"4", true, false}, {"99", false, false}} {
		name := "protocol bgp Node_10_0_0_" + c.last + " "
		if v.File == birdtemplates.IPv6File {
			name = "protocol bgp Node_fd00__" + c.last + " "
		}
		_, session, found := strings.Cut(text, name)
		session, _, closed := strings.Cut(session, "\n}")
		if !found || !closed || strings.Contains(session, "\n  bfd on;") != c.bfd || strings.Contains(session, "\n  passive on;") != c.passive {
			t.Errorf("%s of Calico %s: the session with .%s should have bfd %v, passive %v:\n%s", v.File, v.Name, c.last, c.bfd, c.passive, session)
		}
	}
	if strings.Count(text, "protocol bfd {") != 1 || strings.Count(text, "graceful restart wait 20;") != 1 {
		t.Errorf("%s of Calico %s has not one protocol bfd and one wait:\n%s", v.File, v.Name, text)
	}
}
