// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package compared checks the page that sets etcd storage beside the controller that it succeeds: each defect has its row, and each test that is named to
// show that it does not exist here exists.
package compared
