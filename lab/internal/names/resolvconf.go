// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"fmt"
	"net/netip"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
)

// Address is where the lab's server of names answers, to pods and to the lab's own processes alike.
func Address() netip.AddrPort {
	const port = 53
	return netip.AddrPortFrom(netip.MustParseAddr(blueprint.NamesService), port)
}

// ResolvConf is the /etc/resolv.conf of a pod in the namespace, with the search list and options that kubelet writes with the dnsPolicy ClusterFirst
// (pkg/kubelet/network/dns); of no pod if the namespace is empty.
func ResolvConf(namespace string) string {
	search := "svc." + Domain + " " + Domain
	if namespace != "" {
		search = namespace + ".svc." + Domain + " " + search
	}
	return fmt.Sprintf("search %s\nnameserver %s\noptions ndots:5\n", search, Address().Addr())
}
