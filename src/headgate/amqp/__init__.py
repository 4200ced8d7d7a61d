"""AMQP 0-9-1: parses frames, calls the broker, and sends its deliveries and answers."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.amqp.client import AmqpClient as AmqpClient
    from headgate.amqp.client import Delivered as Delivered
    from headgate.amqp.client import parse_address as parse_address
    from headgate.amqp.codec import AmqpCodec as AmqpCodec
    from headgate.amqp.content import Content as Content
    from headgate.amqp.content import make_message as make_message
    from headgate.amqp.deliveries import sent_content as sent_content
    from headgate.amqp.server import AmqpServer as AmqpServer
    from headgate.amqp.stream_codec import encode_for_publish as encode_for_publish
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "client": ["AmqpClient", "Delivered", "parse_address"],
            "codec": ["AmqpCodec"],
            "content": ["Content", "make_message"],
            "deliveries": ["sent_content"],
            "server": ["AmqpServer"],
            "stream_codec": ["encode_for_publish"],
        },
    )
