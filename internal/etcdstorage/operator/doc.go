// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package operator decides what to do about one EtcdStorage: from a World, which is all that is seen, it makes a Plan, which is the writes that
// remain, in order, and the reasons why others are not made. It reads, writes and generates nothing itself.
//
// The order of a new tenant: finalizer → claim of its prefix in the core → CAs → bundles → certificates → etcd user → objects. Of one that goes:
// proxies → etcd user → what was delivered → data or its release → objects → finalizer.
package operator
