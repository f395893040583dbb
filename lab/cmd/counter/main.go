// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command counter is the program of the image mooring-lab/counter: it goes on counting where the file of its volume ends. Each number is a line of that file,
// flushed to the disk (fsync) before it is also a line of a record elsewhere, which tests read: what the record has, the volume must never lose.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pause is between two numbers.
const pause = 50 * time.Millisecond

func main() {
	const arguments = 4
	if len(os.Args) != arguments {
		fmt.Fprintln(os.Stderr, "counter: arguments are the file of the volume, the folder of records, and the name of the writer")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "counter:", err)
		os.Exit(1)
	}
}

// run counts until it is told to end. Any error of the volume ends it: a number that may not be on the disk is not recorded.
func run(path, folder, node string) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	number, err := last(file)
	if err != nil {
		return err
	}
	writer := node + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	record, err := os.OpenFile(filepath.Join(folder, writer), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "counting on from", number)
	for {
		number++
		line := strconv.Itoa(number) + " " + writer + "\n"
		if _, err := file.WriteString(line); err != nil {
			return err
		}
		if err := file.Sync(); err != nil {
			return err
		}
		if _, err := record.WriteString(line); err != nil {
			return err
		}
		select {
		case <-stop:
			return errors.Join(file.Close(), record.Close())
		case <-time.After(pause):
		}
	}
}

// last returns the last number of the file and leaves the file at its end. What a machine that went down left of a line is removed: its number was not
// recorded.
func last(file *os.File) (int, error) {
	reader := bufio.NewReader(file)
	number, whole := 0, int64(0)
	for {
		line, err := reader.ReadString('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
		text, _, _ := strings.Cut(line, " ")
		if number, err = strconv.Atoi(text); err != nil {
			return 0, fmt.Errorf("the file has a line that is not a number: %w", err)
		}
		whole += int64(len(line))
	}
	if err := file.Truncate(whole); err != nil {
		return 0, err
	}
	_, err := file.Seek(whole, io.SeekStart)
	return number, err
}
