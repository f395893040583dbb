// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package lending

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
)

// Variable names the Unix socket of a pool. A name that begins with @ is in Linux's abstract namespace (unix(7)): it leaves no file behind, and it can
// be the same in each run, so that go test finds its cached results.
const Variable = "MOORING_CONTROL_PLANES"

// A Loan is a control plane that nobody else uses until Return is called or the process ends.
type Loan struct {
	// Dir is the folder of the lab that runs it.
	Dir  string
	conn net.Conn
}

// request is what a borrower sends, once, as a line of JSON.
type request struct {
	// Folder is the borrower's, by which the CPU time of the loan is recorded.
	Folder string `json:"folder"`
}

// reply is what the pool sends, once, as a line of JSON.
type reply struct {
	Dir   string `json:"dir,omitempty"`
	Error string `json:"error,omitempty"`
}

// Borrow waits for a control plane of the pool that listens on socket. It fails if there is no pool, or if a control plane could not be started.
func Borrow(ctx context.Context, socket string) (*Loan, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("borrowing a control plane: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	folder, err := os.Getwd()
	if err == nil {
		err = json.NewEncoder(conn).Encode(request{Folder: folder})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("borrowing a control plane: %w", err), conn.Close())
	}
	var got reply
	if err := json.NewDecoder(conn).Decode(&got); err != nil {
		return nil, errors.Join(fmt.Errorf("borrowing a control plane: %w", err), conn.Close())
	}
	if got.Error != "" {
		return nil, errors.Join(fmt.Errorf("borrowing a control plane: %s", got.Error), conn.Close())
	}
	return &Loan{Dir: got.Dir, conn: conn}, nil
}

// Return gives the control plane back, and returns when the pool has it. Whatever still uses it must have stopped.
func (l *Loan) Return() {
	if conn, ok := l.conn.(*net.UnixConn); ok && conn.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, conn) // until the pool closes it
	}
	_ = l.conn.Close()
}
