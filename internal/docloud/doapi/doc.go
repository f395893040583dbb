// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package doapi talks to DigitalOcean's API (https://docs.digitalocean.com/reference/api) and to nothing else. It knows routes, pages, limits and
// errors; what is to be done with the answers is decided elsewhere.
//
// A list is either whole or an error. "Not found" is an answer of the API itself, never a proxy's. A write of which no response arrived may have
// been made: its error says so ([ErrAmbiguous]), and it is not tried again here.
package doapi
