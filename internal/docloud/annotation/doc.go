// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package annotation knows the annotations by which a Service is given its DigitalOcean load balancer: their names, what may stand in them,
// what they do and for which type of load balancer.
//
// It is pure. [Table] is the one list of them, from which the reference page is written; [Parse] turns a Service's annotations into [Settings].
//
// Three things can be said of a value, and the difference matters to who reads the event:
//
//   - an [Error]: the upstream project refuses the value too, and no load balancer is made or changed until it is right;
//   - a [Warning]: the upstream project accepts the value although it means nothing, or DigitalOcean documents that it will refuse it. The request
//     is the same as the upstream project's, so that existing manifests work; the warning becomes an event, so that somebody learns of it;
//   - nothing: it does what it says.
//
// Which annotations are read depends on the type of the load balancer, as it does with the upstream project: what a type does not use is not even
// looked at, so that a wrong value there is a warning and not an error.
package annotation
