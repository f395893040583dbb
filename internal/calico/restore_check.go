// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// CheckRestore says what Restore would say now, and writes nothing: nil if it would re-create the object.
func (d *Etcd) CheckRestore(ctx context.Context, object Object, without ...string) error {
	if err := d.checkRestorable(ctx, object, map[string]int64{}); err != nil {
		return err
	}
	value, err := object.stripped(without)
	if err != nil {
		return err
	}
	resp, err := d.get(ctx, object.Key, clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("reading %s: %w", object.Key, err)
	}
	if resp.Count == 0 {
		return nil
	}
	return d.existing(ctx, object.Key, value)
}

// stripped is the object's value without some annotations.
func (o Object) stripped(without []string) ([]byte, error) {
	value := []byte(o.Value)
	for _, annotation := range without {
		var err error
		if value, err = setAnnotation(value, annotation, ""); err != nil {
			return nil, fmt.Errorf("restoring %s: %w", o.Key, err)
		}
	}
	return value, nil
}
