// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package doctor looks at the machine and says what a lab will find there, and what each missing thing costs. Looking (Examine) and judging
// (Judge) are apart: the judgement is a pure function of what was seen.
package doctor
