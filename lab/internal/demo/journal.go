// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// journal follows the log of calico-node-sync: one JSON object a line.
type journal struct {
	file *os.File
	// rest is the beginning of a line whose end is not written yet.
	rest []byte
	// reason is the last one told; many steps have the same, and it is said once.
	reason string
}

// openJournal starts at the end of the log: what happened before is not part of the story.
func openJournal(path string) (*journal, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the log of calico-node-sync: %w", err)
	}
	if _, err := file.Seek(0, io.SeekEnd); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("finding the end of the log of calico-node-sync: %w", err)
	}
	return &journal{file: file}, nil
}

func (j *journal) close() { _ = j.file.Close() }

// next returns the lines for people that have come since the last call.
func (j *journal) next() ([]string, error) {
	added, err := io.ReadAll(j.file)
	if err != nil {
		return nil, fmt.Errorf("reading the log of calico-node-sync: %w", err)
	}
	lines := bytes.Split(append(j.rest, added...), []byte("\n"))
	j.rest = bytes.Clone(lines[len(lines)-1])
	var told []string
	for _, line := range lines[:len(lines)-1] {
		text, reason := tell(line)
		if text == "" {
			continue
		}
		if reason != "" && reason != j.reason {
			text += "\nbecause " + reason
			j.reason = reason
		}
		told = append(told, text)
	}
	return told, nil
}

// tell turns a line of the log into one for people and the reason for it; the text is empty for a line that is not a part of the story.
func tell(line []byte) (text, reason string) {
	var entry struct {
		Level, Msg, Error  string
		Did, Because, Gate string
	}
	if json.Unmarshal(line, &entry) != nil {
		return "", ""
	}
	switch {
	case entry.Did != "":
		return entry.Did, entry.Because
	case entry.Gate != "" && entry.Because != "":
		return fmt.Sprintf("waiting (%s): %s", entry.Gate, entry.Because), ""
	case entry.Level == "ERROR" || entry.Level == "WARN":
		return strings.TrimSpace(fmt.Sprintf("%s: %s %s", entry.Level, entry.Msg, entry.Error)), ""
	default:
		return "", ""
	}
}
