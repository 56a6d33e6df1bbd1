"""The training loop on a small stream, for tests that look at a method after any step."""

from __future__ import annotations

from acr.data.stream import TaskStream
from acr.data.views import Views
from acr.methods.method import Context, method_class
from acr.networks import resnet18
from acr.protocols import Protocol
from acr.randomness import keyed_global
from acr.testing import toy_data
from acr.training.loop import Step, TaskEnd, TrainingLoop


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
        self.loop = TrainingLoop(self.stream, cls(build_network("run"), cls.Options(**(options or {})), self.context),
                                 self.context)  # fmt: skip
        self.method = self.loop.method
        self.events = iter(self.loop)

    @property
    def position(self):
        """Task, epoch and step that come next."""
        cursor = self.loop.cursor
        return cursor.task, cursor.epoch, cursor.step

    @property
    def task(self):
        return self.loop.tasks[self.position[0]]

    @property
    def done(self):
        return self.position[0] >= len(self.loop.tasks)

    def place(self, task, epoch, step):
        self.loop.place(self.loop.tasks[task], epoch, step)

    def batch(self):
        """The batch that comes next; the method is told that it comes."""
        task, epoch, step = self.position
        self.place(task, epoch, step)
        return next(self.loop.batches(self.loop.tasks[task], epoch, step))

    def step(self):
        """Observe the next batch, with what comes before and after it; the loss."""
        taken = next(event for event in self.events if isinstance(event, Step))
        batch = taken.batch
        if batch.step + 1 == self.loop.steps_per_epoch(self.loop.tasks[batch.task]):  # the end of the epoch comes too
            next(self.events)
            if batch.epoch + 1 == self.context.epochs:
                assert isinstance(next(self.events), TaskEnd)
        return taken.loss

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
