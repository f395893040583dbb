// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package oldplanner

// A plan is made in stages, each of which is a type. A stage has the methods of those before it, and none of those behind it:
//
//	World ── facts ── candidates ── designs ── choices ── stages ── gates ── checks
//	                                   └── objections
//
//	facts       what is written in the World: who is a reflector, a client, adopted; who has spoken
//	candidates  who may be a reflector, who is lost, whether there is an emergency, and whether the World is to be believed
//	designs     which groups and BGPPeers there shall be
//	objections  why nothing is planned
//	choices     who shall be a reflector
//	stages      which writes come next
//	gates       what these wait for, and whose word is needed
//	checks      what the model of BGP says of them
//
// A stage reads the World that it is of and changes nothing in it. Of another World it is made again.
type (
	facts      struct{ *World }
	candidates struct{ facts }
	designs    struct{ candidates }
	objections struct{ designs }
	choices    struct{ designs }
	stages     struct{ choices }
	gates      struct{ stages }
	checks     struct{ gates }
)

// factsOf and the others make a stage of a World, which must stay as it is for as long.
func factsOf(w *World) facts           { return facts{w} }
func candidatesOf(w *World) candidates { return candidates{factsOf(w)} }
func designsOf(w *World) designs       { return designs{candidatesOf(w)} }
func objectionsOf(w *World) objections { return objections{designsOf(w)} }
func choicesOf(w *World) choices       { return choices{designsOf(w)} }
func stagesOf(w *World) stages         { return stages{choicesOf(w)} }
func gatesOf(w *World) gates           { return gates{stagesOf(w)} }
func checksOf(w *World) checks         { return checks{gatesOf(w)} }
