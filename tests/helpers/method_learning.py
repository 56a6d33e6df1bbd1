"""A training loop in a few lines, for tests that look at a method after any step."""

from __future__ import annotations

from functools import partial

import torch

from acr.data.stream import TaskStream
from acr.data.views import Views
from acr.methods.method import Batch, Context, method_class
from acr.networks import resnet18
from acr.protocols import Protocol
from acr.randomness import generator, keyed_global
from acr.testing import toy_data


class Learning:
    """A method on a stream. ``step()`` observes the next batch; ``losses(n)`` takes n steps."""

    def __init__(
        self, name, tasks=((0, 1), (2, 3)), data=None, quirks=(), known_tasks=True, width=8, options=None, **c
    ):
        self.data = data or toy_data()
        self.stream = TaskStream(self.data, tasks)
        cls = method_class(name)
        shape = self.data.train.image_shape

        def build_network(purpose):
            with keyed_global(0, purpose):
                return resnet18(len(self.stream.classes), width, cls.head, shape[0], self.data.mean, self.data.std)

        settings = {"seed": 0, "buffer_size": 10, "batch_size": 8, "replay_size": 8, "epochs": 2, "learning_rate": 0.05}
        self.context = Context(
            **{**settings, **c},
            image_shape=shape,
            views=Views.for_side(shape[1], flip=False),
            build_network=build_network,
            tasks=len(self.stream) if known_tasks else None,
            classes=len(self.stream.classes),
            protocol=Protocol.make("sound", quirks),
        )
        self.method = cls(build_network("run"), cls.Options(**(options or {})), self.context)
        self.position = (0, 0, 0)

    @property
    def task(self):
        return self.stream[self.position[0]]

    @property
    def done(self):
        return self.position[0] >= len(self.stream)

    def place(self, task, epoch, step):
        context = self.context
        context.task, context.epoch, context.step = task, epoch, step
        seen = [column for earlier in range(task + 1) for column in self.stream.columns(earlier)]
        context.seen = list(dict.fromkeys(seen))

    def batch(self):
        """The batch that comes next."""
        task, epoch, step = self.position
        self.place(task, epoch, step)
        samples = self.stream[task]
        order = torch.randperm(len(samples), generator=generator(0, "shuffle", task, epoch))
        indices = order[step * self.context.batch_size :][: self.context.batch_size]
        return Batch(indices, samples.images(indices), samples.targets[indices], task, epoch, step,
                     self.context.views, partial(self.draws, task, epoch, step))  # fmt: skip

    def draws(self, task, epoch, step, purpose):
        return generator(0, purpose, task, epoch, step)

    def step(self):
        """Observe the next batch, with what comes before and after it; the loss."""
        task, epoch, step = self.position
        batch = self.batch()
        samples, method = self.task, self.method
        if epoch == step == 0:
            self.place(task, 0, 0)
            method.begin_task(samples)
        self.place(task, epoch, step)
        method.network.train()
        loss = method.observe(batch)
        if (step + 1) * self.context.batch_size < len(samples):
            self.position = (task, epoch, step + 1)
            return loss
        self.place(task, epoch, step + 1)
        method.end_epoch()
        self.position = (task, epoch + 1, 0)
        if epoch + 1 == self.context.epochs:
            self.place(task, epoch + 1, 0)
            method.end_task(samples)
            self.position = (task + 1, 0, 0)
        return loss

    def run(self, task=None, epoch=0, step=0):
        """Up to a position, or to the end; all losses on the way."""
        losses = []
        while not self.done and (task is None or self.position < (task, epoch, step)):
            losses.append(self.step())
        return losses

    def accuracy(self):
        """Share of the training images that are recognised."""
        self.method.network.eval()
        right = [
            (self.method.logits(task.images()).argmax(1) == task.targets).float().mean().item() for task in self.stream
        ]
        return sum(right) / len(right)
