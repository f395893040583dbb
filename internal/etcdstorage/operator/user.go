// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Keys in the Secret with the passwords: one password and the time at which it was drawn for each user, by its number. A number is used once, so
// that a user in the core always has the password that the Secret has, or had before it was lost.
const (
	passwordKey = "password-"
	madeKey     = "made-"
)

// PasswordKey is where the password of a user is, MadeKey since when it is used.
func PasswordKey(number int) string { return passwordKey + strconv.Itoa(number) }

// MadeKey is where the time of a password is.
func MadeKey(number int) string { return madeKey + strconv.Itoa(number) }

// usersWanted reports that the tenant has an etcd user of its own.
func (w World) usersWanted() bool { return w.Settings.TenantUsers && w.Core.Auth }

// UserName is the name of a tenant's etcd user.
func UserName(tenant string, number int) string { return EtcdRole(tenant) + "/" + strconv.Itoa(number) }

// userNumber is the number of a user of the tenant; 0 for another name.
func userNumber(tenant, user string) int {
	text, ok := strings.CutPrefix(user, EtcdRole(tenant)+"/")
	if n, err := strconv.Atoi(text); ok && err == nil && n > 0 {
		return n
	}
	return 0
}

// passwords are the numbers in the Secret, in order, and its data.
func (w World) passwords() (numbers []int, data map[string][]byte) {
	o, ours := w.own(KindSecret, UserSecretName(w.Storage.Name))
	if !ours {
		return nil, nil
	}
	data = o.secretData()
	for key, value := range data {
		text, ok := strings.CutPrefix(key, passwordKey)
		if n, err := strconv.Atoi(text); ok && err == nil && n > 0 && len(value) > 0 {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, data
}

// current is the number of the user that proxies shall use; 0 if there is none.
func (w World) current() int {
	numbers, _ := w.passwords()
	if len(numbers) == 0 {
		return 0
	}
	return numbers[len(numbers)-1]
}

// passwordDue says why another password must be drawn.
func (w World) passwordDue() string {
	numbers, data := w.passwords()
	if len(numbers) == 0 {
		return "the tenant has no etcd user"
	}
	made, err := time.Parse(time.RFC3339, string(data[MadeKey(numbers[len(numbers)-1])]))
	if len(numbers) == 1 && w.Settings.UserRotation > 0 && err == nil && w.Now.Sub(made) >= w.Settings.UserRotation {
		return fmt.Sprintf("its etcd user is used since %s", made.Format(time.RFC3339))
	}
	return ""
}

// users adds what is to be done about the tenant's etcd user before the proxies use it.
func (w World) users(p *Plan) {
	if !w.usersWanted() || p.ended {
		return
	}
	name := UserSecretName(w.Storage.Name)
	if o, exists := w.object(KindSecret, name); exists && !o.ownedBy(string(w.Storage.UID)) {
		return
	}
	numbers, data := w.passwords()
	if reason := w.passwordDue(); reason != "" {
		next := 1
		for _, user := range w.Core.Users {
			next = max(next, userNumber(w.Storage.Name, user)+1)
		}
		if len(numbers) > 0 {
			next = max(next, numbers[len(numbers)-1]+1)
		}
		p.add(MakePassword{w.write(w.secret(name, "Opaque", data), reason), next})
		return
	}
	user := UserName(w.Storage.Name, w.current())
	if !w.Core.RoleReady || !slices.Contains(w.Core.Granted, user) {
		p.add(EnsureUser{
			About{"etcd user " + user, "it is missing in the core, or its role differs from the desired state"},
			user, string(data[PasswordKey(w.current())]),
		})
	}
}

// retire adds the removal of users that no proxy uses any more. It comes last, when the proxies of the current template have taken over.
func (w World) retire(p *Plan) {
	if !w.usersWanted() || p.ended || len(p.Steps) > 0 || !w.rolledOut() {
		return
	}
	current := w.current()
	var old []string
	for _, user := range w.Core.Users {
		if n := userNumber(w.Storage.Name, user); n > 0 && n < current {
			old = append(old, user)
		}
	}
	if len(old) > 0 {
		slices.Sort(old)
		p.add(RetireUsers{About: About{"etcd users " + strings.Join(old, ", "), "no proxy uses them"}, Users: old})
		return
	}
	numbers, data := w.passwords()
	if len(numbers) > 1 {
		kept := maps.Clone(data)
		for _, n := range numbers[:len(numbers)-1] {
			delete(kept, PasswordKey(n))
			delete(kept, MadeKey(n))
		}
		p.add(Apply{w.write(w.secret(UserSecretName(w.Storage.Name), "Opaque", kept), "passwords of deleted users")})
	}
}

// rolledOut reports that all proxies are of the current template and ready.
func (w World) rolledOut() bool {
	o, ours := w.own(KindDeployment, ProxyName(w.Storage.Name))
	wanted := int64(w.Storage.Spec.Replicas)
	return ours && o.number("status", "observedGeneration") >= o.number("metadata", "generation") && o.number("status", "updatedReplicas") >= wanted &&
		o.number("status", "replicas") == o.number("status", "updatedReplicas") && o.number("status", "readyReplicas") >= wanted
}
