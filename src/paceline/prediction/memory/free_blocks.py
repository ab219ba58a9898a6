"""Free blocks of an allocator: the smallest that fits is taken, neighbours join when freed."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Block:
    """Part of a segment; neighbours in the same segment are linked."""

    size_bytes: int
    address: int
    previous: Block | None = None
    following: Block | None = None
    is_free: bool = True

    def absorb_following(self) -> None:
        """The neighbour behind becomes a part of this block."""
        assert self.following is not None
        self.size_bytes += self.following.size_bytes
        self.following = self.following.following
        if self.following:
            self.following.previous = self

    def cut(self, size_bytes: int) -> Block:
        """Keep so many bytes; the rest is a block of its own, behind this one."""
        rest = Block(self.size_bytes - size_bytes, self.address + size_bytes, self, self.following)
        if rest.following:
            rest.following.previous = rest
        self.size_bytes, self.following = size_bytes, rest
        return rest


@dataclass(slots=True, eq=False)
class FreeBlocks:
    """Free blocks by size and address."""

    keys: list[tuple[int, int]] = field(default_factory=list)
    blocks: dict[int, Block] = field(default_factory=dict)

    def add(self, block: Block) -> None:
        """A block becomes free."""
        block.is_free = True
        bisect.insort(self.keys, (block.size_bytes, block.address))
        self.blocks[block.address] = block

    def remove(self, block: Block) -> None:
        """A free block is in use."""
        block.is_free = False
        del self.keys[bisect.bisect_left(self.keys, (block.size_bytes, block.address))]
        del self.blocks[block.address]

    def take_fit(self, size_bytes: int) -> Block | None:
        """The smallest free block of at least ``size_bytes``, at the lowest address, now in use."""
        place = bisect.bisect_left(self.keys, (size_bytes, -1))
        if place == len(self.keys):
            return None
        block = self.blocks.pop(self.keys.pop(place)[1])
        block.is_free = False
        return block

    def joined(self, block: Block) -> Block:
        """A block that is given back, as one with its free neighbours; it is not added yet."""
        before, after = block.previous, block.following
        if after is not None and after.is_free:
            self.remove(after)
            block.absorb_following()
        if before is not None and before.is_free:
            self.remove(before)
            before.absorb_following()
            return before
        return block
