// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/journal"
)

// AdminHandler serves what [Account] and the journal offer, over HTTP and JSON. It asks for no token: serve it where only the
// lab can reach it. Errors are {"error": "…"}. Durations are nanoseconds, as Go's JSON has them.
//
//	GET    /v1/state                                          everything, see State
//	GET    /v1/stats                                          counters of the journal
//	GET    /v1/requests?route=PUT&after=12&account=a&fault=f  entries of the journal
//	DELETE /v1/requests                                       forget entries and counters
//	GET    /v1/faults   POST (a list of rules)   DELETE
//	PUT    /v1/consistency
//	POST   /v1/accounts/{account}/tokens   DELETE /v1/accounts/{account}/tokens/{token}
//	PUT    /v1/accounts/{account}/status                      {"status", "message"}
//	GET    /v1/accounts/{account}/droplets   POST (DropletSpec)
//	GET    /v1/accounts/{account}/droplets/{droplet}   DELETE            {droplet} is an ID or a name
//	PUT    /v1/accounts/{account}/droplets/{droplet}/status   {"status": "off"}
//	PUT    /v1/accounts/{account}/droplets/{droplet}/networks
//	GET    /v1/accounts/{account}/droplets/{droplet}/metadata/v1/...
//	GET    /v1/accounts/{account}/load_balancers   POST (LoadBalancer)
//	GET    /v1/accounts/{account}/load_balancers/{lb}   DELETE   PATCH (fields of LoadBalancer)
//	PUT    /v1/accounts/{account}/load_balancers/{lb}/status  {"status": "errored"}
//	GET    /v1/accounts/{account}/certificates   POST (CertificateSpec)
//	DELETE /v1/accounts/{account}/certificates/{id}
//	POST   /v1/accounts/{account}/certificates/{id}/rotate
//	GET    /v1/accounts/{account}/firewalls   POST (Firewall)
//	DELETE /v1/accounts/{account}/firewalls/{firewall}   PATCH (fields of Firewall)
//
// {account} is an account's name, or - for the first one.
func (s *Simulator) AdminHandler() http.Handler {
	mux := http.NewServeMux()
	s.adminJournal(mux)
	s.adminAccounts(mux)
	s.adminDroplets(mux)
	s.adminBalancers(mux)
	s.adminCertificates(mux)
	s.adminFirewalls(mux)
	return mux
}

// admin makes a handler of a function that returns what to show, nothing if nil.
func admin(do func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		shown, err := do(r)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case err != nil:
			w.WriteHeader(http.StatusUnprocessableEntity)
			shown = map[string]string{"error": err.Error()}
		case shown == nil:
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_ = json.NewEncoder(w).Encode(shown)
	}
}

// adminIn is admin for what happens in the account that the path names.
func (s *Simulator) adminIn(do func(a *Account, r *http.Request) (any, error)) http.HandlerFunc {
	return admin(func(r *http.Request) (any, error) {
		name := r.PathValue("account")
		if name == "-" {
			name = ""
		}
		a, err := s.findAccount(name)
		if err != nil {
			return nil, err
		}
		return do(a, r)
	})
}

// readJSON reads a request's body and refuses fields that are not known, since a typo would do nothing without a word.
func readJSON(r *http.Request, into any) error {
	decoder := json.NewDecoder(io.LimitReader(r.Body, maxBody))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// patch replaces the fields that a request names; fields below them are replaced with them.
func patch[T any](r *http.Request, edit func(func(*T)) error) error {
	var fields map[string]json.RawMessage
	if err := readJSON(r, &fields); err != nil {
		return err
	}
	var wrong error
	err := edit(func(current *T) {
		var patched *T
		if patched, wrong = merge(*current, fields); wrong == nil {
			*current = *patched
		}
	})
	return errors.Join(wrong, err)
}

// merge returns a copy of a value with some of its fields replaced. A field that it does not have is an error.
func merge[T any](value T, fields map[string]json.RawMessage) (*T, error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(encoded, &all); err != nil {
		return nil, err
	}
	maps.Copy(all, fields)
	if encoded, err = json.Marshal(all); err != nil {
		return nil, err
	}
	var merged T
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.DisallowUnknownFields()
	return &merged, decoder.Decode(&merged)
}

func (s *Simulator) adminJournal(mux *http.ServeMux) {
	mux.Handle("GET /v1/state", admin(func(*http.Request) (any, error) { return s.State(), nil }))
	mux.Handle("GET /v1/stats", admin(func(*http.Request) (any, error) { return s.Stats(), nil }))
	mux.Handle("GET /v1/requests", admin(func(r *http.Request) (any, error) {
		query := r.URL.Query()
		filter := journal.Filter{Route: query.Get("route"), Account: query.Get("account"), Fault: query.Get("fault")}
		if after := query.Get("after"); after != "" {
			number, err := strconv.ParseUint(after, 10, 64)
			if err != nil {
				return nil, err
			}
			filter.After = number
		}
		return append([]journal.Entry{}, s.Requests(filter)...), nil
	}))
	mux.Handle("DELETE /v1/requests", admin(func(*http.Request) (any, error) { s.ResetJournal(); return nil, nil }))
	mux.Handle("GET /v1/faults", admin(func(*http.Request) (any, error) { return s.Faults(), nil }))
	mux.Handle("POST /v1/faults", admin(func(r *http.Request) (any, error) {
		var rules []fault.Rule
		if err := readJSON(r, &rules); err != nil {
			return nil, err
		}
		return nil, s.Inject(rules...)
	}))
	mux.Handle("DELETE /v1/faults", admin(func(*http.Request) (any, error) { s.ClearFaults(); return nil, nil }))
	mux.Handle("PUT /v1/consistency", admin(func(r *http.Request) (any, error) {
		var consistency Consistency
		if err := readJSON(r, &consistency); err != nil {
			return nil, err
		}
		s.SetConsistency(consistency)
		return nil, nil
	}))
}

// statusChange is the body of what sets a status.
type statusChange struct {
	Status  string `json:"status"`
	Message string `json:"message,omitempty"`
}

func (s *Simulator) adminAccounts(mux *http.ServeMux) {
	mux.Handle("POST /v1/accounts/{account}/tokens", s.adminIn(func(a *Account, r *http.Request) (any, error) {
		var token Token
		if err := readJSON(r, &token); err != nil {
			return nil, err
		}
		a.AddToken(token)
		return nil, nil
	}))
	mux.Handle("DELETE /v1/accounts/{account}/tokens/{token}", s.adminIn(func(a *Account, r *http.Request) (any, error) {
		a.RevokeToken(r.PathValue("token"))
		return nil, nil
	}))
	mux.Handle("PUT /v1/accounts/{account}/status", s.adminIn(func(a *Account, r *http.Request) (any, error) {
		var change statusChange
		if err := readJSON(r, &change); err != nil {
			return nil, err
		}
		a.SetStatus(change.Status, change.Message)
		return nil, nil
	}))
}

func (s *Simulator) adminDroplets(mux *http.ServeMux) {
	const droplets, droplet = "/v1/accounts/{account}/droplets", "/v1/accounts/{account}/droplets/{droplet}"
	mux.Handle("GET "+droplets, s.adminIn(func(a *Account, _ *http.Request) (any, error) {
		return append([]Droplet{}, a.Droplets()...), nil
	}))
	mux.Handle("POST "+droplets, s.adminIn(func(a *Account, r *http.Request) (any, error) {
		var spec DropletSpec
		if err := readJSON(r, &spec); err != nil {
			return nil, err
		}
		return a.CreateDroplet(spec)
	}))
	mux.Handle("GET "+droplet, s.adminIn(func(a *Account, r *http.Request) (any, error) { return a.Droplet(r.PathValue("droplet")) }))
	mux.Handle("DELETE "+droplet, s.adminIn(func(a *Account, r *http.Request) (any, error) {
		return nil, a.DeleteDroplet(r.PathValue("droplet"))
	}))
	mux.Handle("PUT "+droplet+"/status", s.adminIn(func(a *Account, r *http.Request) (any, error) {
		var change statusChange
		if err := readJSON(r, &change); err != nil {
			return nil, err
		}
		return nil, a.SetDropletStatus(r.PathValue("droplet"), change.Status)
	}))
	mux.Handle("PUT "+droplet+"/networks", s.adminIn(func(a *Account, r *http.Request) (any, error) {
		var networks Networks
		if err := readJSON(r, &networks); err != nil {
			return nil, err
		}
		return nil, a.SetDropletNetworks(r.PathValue("droplet"), networks)
	}))
	mux.HandleFunc("GET "+droplet+"/metadata/", func(w http.ResponseWriter, r *http.Request) {
		account, which := r.PathValue("account"), r.PathValue("droplet")
		if account == "-" {
			account = ""
		}
		below := s.Metadata(func(*http.Request) (string, string, bool) { return account, which, true })
		http.StripPrefix("/v1/accounts/"+r.PathValue("account")+"/droplets/"+which, below).ServeHTTP(w, r)
	})
}

func (s *Simulator) adminBalancers(mux *http.ServeMux) {
	const balancers, balancer = "/v1/accounts/{account}/load_balancers", "/v1/accounts/{account}/load_balancers/{lb}"
	mux.Handle("GET "+balancers, s.adminIn(func(a *Account, _ *http.Request) (any, error) {
		return append([]LoadBalancer{}, a.LoadBalancers()...), nil
	}))
	mux.Handle("POST "+balancers, s.adminIn(func(a *Account, r *http.Request) (any, error) {
		var lb LoadBalancer
		if err := readJSON(r, &lb); err != nil {
			return nil, err
		}
		return a.CreateLoadBalancer(lb)
	}))
	mux.Handle("GET "+balancer, s.adminIn(func(a *Account, r *http.Request) (any, error) { return a.LoadBalancer(r.PathValue("lb")) }))
	mux.Handle("DELETE "+balancer, s.adminIn(func(a *Account, r *http.Request) (any, error) {
		return nil, a.DeleteLoadBalancer(r.PathValue("lb"))
	}))
	mux.Handle("PATCH "+balancer, s.adminIn(func(a *Account, r *http.Request) (any, error) {
		return nil, patch(r, func(edit func(*LoadBalancer)) error { return a.EditLoadBalancer(r.PathValue("lb"), edit) })
	}))
	mux.Handle("PUT "+balancer+"/status", s.adminIn(func(a *Account, r *http.Request) (any, error) {
		var change statusChange
		if err := readJSON(r, &change); err != nil {
			return nil, err
		}
		return nil, a.SetLoadBalancerStatus(r.PathValue("lb"), change.Status)
	}))
	mux.Handle("POST "+balancer+"/busy", s.adminIn(func(a *Account, r *http.Request) (any, error) {
		var during time.Duration
		if err := readJSON(r, &during); err != nil {
			return nil, err
		}
		return nil, a.MakeBusy(r.PathValue("lb"), during)
	}))
}

func (s *Simulator) adminCertificates(mux *http.ServeMux) {
	const certificates = "/v1/accounts/{account}/certificates"
	mux.Handle("GET "+certificates, s.adminIn(func(a *Account, _ *http.Request) (any, error) {
		return append([]Certificate{}, a.Certificates()...), nil
	}))
	mux.Handle("POST "+certificates, s.adminIn(func(a *Account, r *http.Request) (any, error) {
		var spec CertificateSpec
		if err := readJSON(r, &spec); err != nil {
			return nil, err
		}
		return a.CreateCertificate(spec)
	}))
	mux.Handle("DELETE "+certificates+"/{id}", s.adminIn(func(a *Account, r *http.Request) (any, error) {
		return nil, a.DeleteCertificate(r.PathValue("id"))
	}))
	mux.Handle("POST "+certificates+"/{id}/rotate", s.adminIn(func(a *Account, r *http.Request) (any, error) {
		return a.RotateCertificate(r.PathValue("id"))
	}))
}

func (s *Simulator) adminFirewalls(mux *http.ServeMux) {
	const firewalls = "/v1/accounts/{account}/firewalls"
	mux.Handle("GET "+firewalls, s.adminIn(func(a *Account, _ *http.Request) (any, error) {
		return append([]Firewall{}, a.Firewalls()...), nil
	}))
	mux.Handle("POST "+firewalls, s.adminIn(func(a *Account, r *http.Request) (any, error) {
		var f Firewall
		if err := readJSON(r, &f); err != nil {
			return nil, err
		}
		return a.CreateFirewall(f)
	}))
	mux.Handle("PATCH "+firewalls+"/{firewall}", s.adminIn(func(a *Account, r *http.Request) (any, error) {
		return nil, patch(r, func(edit func(*Firewall)) error { return a.EditFirewall(r.PathValue("firewall"), edit) })
	}))
	mux.Handle("DELETE "+firewalls+"/{firewall}", s.adminIn(func(a *Account, r *http.Request) (any, error) {
		return nil, a.DeleteFirewall(r.PathValue("firewall"))
	}))
}
