// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command agnhost is the part of the image agnhost of Kubernetes' tests that its storage tests run (bin/storage-e2e).
package main

import (
	"os"

	"github.com/spf13/cobra"
	"k8s.io/kubernetes/test/images/agnhost/mounttest"
	"k8s.io/kubernetes/test/images/agnhost/pause"
)

func main() {
	root := &cobra.Command{Use: "agnhost", Short: "Programs that tests of Kubernetes run in pods."}
	root.AddCommand(mounttest.CmdMounttest, pause.CmdPause)
	if root.Execute() != nil {
		os.Exit(1) // cobra has printed why
	}
}
