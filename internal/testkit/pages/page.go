// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"fmt"
	"regexp"
	"strings"
)

// Block is a block of commands.
type Block struct {
	// Line is the number in the page of the line that opens the block.
	Line int
	// Heading is the one that the block is below, with its number signs.
	Heading string
	// Commands are the lines of the block.
	Commands string
	// Output is what the commands must print, if Shown says that the page shows it.
	Output string
	Shown  bool
}

// CleanUp is the heading that a tutorial ends with.
const CleanUp = "## Clean up"

// fence opens or closes a block, which a list may indent.
var fence = regexp.MustCompile("^( *)```(.*)$")

// Tutorial reads the blocks of a tutorial: all that is in blocks is either run or compared, and it ends with [CleanUp].
func Tutorial(page string) ([]Block, error) {
	lines := strings.Split(page, "\n")
	var blocks []Block
	heading, after := "", -1 // the line right behind the last block of commands
	for i := 0; i < len(lines); i++ {
		if strings.HasPrefix(lines[i], "#") {
			heading = lines[i]
		}
		opened := fence.FindStringSubmatch(lines[i])
		if opened == nil {
			if after == i && strings.TrimSpace(lines[i]) == "" {
				after++
			}
			continue
		}
		begin, text := i, ""
		for i++; ; i++ {
			if i == len(lines) {
				return nil, fmt.Errorf("line %d: the block has no end", begin+1)
			}
			if lines[i] == opened[1]+"```" {
				break
			}
			text += strings.TrimPrefix(lines[i], opened[1]) + "\n"
		}
		switch {
		case opened[2] == "sh":
			blocks = append(blocks, Block{Line: begin + 1, Heading: heading, Commands: text})
			after = i + 1
		case opened[2] == "text" && after == begin:
			last := &blocks[len(blocks)-1]
			last.Output, last.Shown = text, true
		case opened[2] == "text":
			return nil, fmt.Errorf("line %d: no block of commands is directly above this output, so nothing can be compared with it", begin+1)
		default:
			return nil, fmt.Errorf("line %d: a tutorial has blocks of sh and of text alone, not of %q", begin+1, opened[2])
		}
	}
	if len(blocks) == 0 || blocks[len(blocks)-1].Heading != CleanUp {
		return nil, fmt.Errorf("a tutorial ends with commands below %q", CleanUp)
	}
	return blocks, nil
}
