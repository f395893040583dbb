// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"maps"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/pki"
)

// recoverCAs adds the write of what is known of the CAs where the Secret with them is gone: their certificates, of the operator's own
// objects, and which clients were revoked. Their keys are lost, so that others must sign; but what they have signed is still trusted, and
// API servers with a bundle from before go on.
func (w World) recoverCAs(p *Plan) {
	if _, exists := w.object(KindSecret, SignersName(w.Storage.Name)); exists {
		return
	}
	data, found := map[string][]byte{}, map[pki.Purpose]pki.Signers{}
	if o, ours := w.own(KindSecret, ServingName(w.Storage.Name)); ours { // the CA is behind the certificate
		offer, _ := w.offer(pki.Serving)
		found[pki.Serving] = pki.Recovered(o.secretData()[keyCert], offer)
	}
	o, ours := w.own(KindConfigMap, ClientCAName(w.Storage.Name))
	if ours {
		offer, _ := w.offer(pki.Client)
		found[pki.Client] = pki.Recovered(o.configData(v1alpha1.ClientCAKey), offer)
	}
	for purpose, cas := range found {
		maps.Copy(data, cas.Data(purpose))
	}
	if len(data) == 0 {
		return // there were none yet
	}
	if clients := clientsOf(string(o.configData(v1alpha1.RevokedClientsKey)), len(found[pki.Client])); len(clients) > 0 {
		data[clientsKey] = encodeClients(clients)
	}
	p.add(Recover{w.write(w.secret(SignersName(w.Storage.Name), "Opaque", data), "it was deleted, and its keys are lost: new CAs sign from now on, and the previous ones stay trusted until they expire")})
}
